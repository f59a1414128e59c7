#include "hako/table/text_search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "hako/base/assert.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/table/index_key.h"
#include "hako/table/words.h"
#include "hako/text/text_encoding.h"

namespace hako::table {
namespace {

using Numbers = std::vector<RowNumber>;

// Seeks the few numbers in the many.
Numbers InBoth(const Numbers& a, const Numbers& b) {
  static constexpr std::size_t kMuchLonger = 16;
  const Numbers &few = a.size() < b.size() ? a : b, &many = a.size() < b.size() ? b : a;
  Numbers both;
  if (many.size() / kMuchLonger < few.size()) {
    std::set_intersection(few.begin(), few.end(), many.begin(), many.end(), std::back_inserter(both));
    return both;
  }
  auto at = many.begin();
  for (const RowNumber number : few) {
    at = std::lower_bound(at, many.end(), number);
    if (at == many.end()) break;
    if (*at == number) both.push_back(number);
  }
  return both;
}
Numbers InEither(const Numbers& a, const Numbers& b) {
  Numbers all;
  all.reserve(a.size() + b.size());
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}
Numbers Without(const Numbers& a, const Numbers& b) {
  Numbers left;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(left));
  return left;
}

RowSet Complement(RowSet set) {
  set.is_complement = !set.is_complement;
  return set;
}
RowSet Union(RowSet a, RowSet b) { return Complement(Intersection(Complement(std::move(a)), Complement(std::move(b)))); }

void SortUnique(Numbers* numbers) {
  if (std::adjacent_find(numbers->begin(), numbers->end(), std::greater_equal<>()) == numbers->end()) return;
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

// Returns the least key that a block of a list can have, or of a list that begins with this one. The list
// itself is the key of the last block of another one, if its word ends with the mark.
std::string FirstBlock(std::string_view list) { return std::string(list).append(1, kBlockMark); }

std::size_t NumCharacters(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); text.remove_prefix(text::CharacterLength(text))) ++count;
  return count;
}

}  // namespace

RowSet Intersection(const RowSet& a, const RowSet& b) {
  const bool is_exact = a.is_exact && b.is_exact;
  if (a.is_complement && b.is_complement) return {InEither(a.numbers, b.numbers), true, is_exact};
  if (a.is_complement) return {Without(b.numbers, a.numbers), false, is_exact};
  if (b.is_complement) return {Without(a.numbers, b.numbers), false, is_exact};
  return {InBoth(a.numbers, b.numbers), false, is_exact};
}

// A pattern that is not longer than a q-gram begins one wherever it occurs; a longer one has all its
// q-grams where it occurs.
std::optional<TextSearch::Lists> TextSearch::GramsOf(const Node& node, const Index& index) const {
  static constexpr std::size_t kGramsMax = 8;
  const std::string_view given = node.values[0].get().bytes(), pattern = WithoutCutCharacters(given);
  const std::size_t size = NumCharacters(pattern);
  if (pattern.empty()) return std::nullopt;
  Lists lists{.index = &index, .words = {}, .is_exact = node.op == Op::kContains && pattern.size() == given.size()};
  if (size <= index.options().q) {
    if (pattern.find('\0') != pattern.npos) return std::nullopt;
    lists.words.emplace_back(pattern);
    lists.is_prefix = size < index.options().q;
    return lists;
  }
  lists.is_exact = false;
  ForEachGram(pattern, index.options().q, [&lists](std::string_view gram) {
    if (gram.find('\0') == gram.npos) lists.words.emplace_back(gram);
  });
  auto& words = lists.words;
  for (std::size_t kept = 0; words.size() > kGramsMax && kept < kGramsMax; ++kept)
    words[kept] = words[kept * (words.size() - 1) / (kGramsMax - 1)];
  words.resize(std::min(words.size(), kGramsMax));
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words.empty() ? std::nullopt : std::optional(std::move(lists));
}

std::optional<TextSearch::Lists> TextSearch::ListsOf(const Node& node) const {
  if (node.is_key || node.is_numeric) return std::nullopt;
  std::optional<Lists> best;
  for (const Index* const index : indices_) {
    if (node.column != index->options().columns[0].column) continue;
    if (index->parts()[0].kind == IndexKind::kToken) {
      if (node.op < Op::kAllWords || node.op > Op::kPhrase || (node.op != Op::kAnyWord && node.words.empty())) continue;
      Lists lists{.index = index, .words = node.words, .is_union = node.op == Op::kAnyWord, .is_exact = true};
      if (node.op == Op::kPhrase) {
        lists.is_exact = node.words.size() == 1;
        std::sort(lists.words.begin(), lists.words.end());
        lists.words.erase(std::unique(lists.words.begin(), lists.words.end()), lists.words.end());
      }
      best = std::move(lists);
    } else if (node.op == Op::kContains || node.op == Op::kBegins || node.op == Op::kEnds) {
      std::optional<Lists> lists = GramsOf(node, *index);
      if (lists && (!best || (best->is_prefix && !lists->is_prefix))) best = std::move(lists);
    }
  }
  if (best && best->index->where().node() != nullptr) best->is_exact = false;  // a NOT would have rows outside the index
  return best;
}

std::uint64_t TextSearch::SizeAbout(const std::string& list, bool is_prefix) {
  static constexpr std::uint64_t kNumbersOfBlock = 32;   // on average
  if (effort_ != nullptr && !effort_->Take()) return 0;  // the search will end with the error
  PooledCursor cursor(core_);
  cursor->JumpBriefly(FirstBlock(list));
  if (!cursor->Valid() || !cursor->key().starts_with(list)) return 0;
  if (is_prefix) return std::max<std::uint64_t>(cursor->CountAbout(EndOfPrefix(list).value_or(std::string())), 1) * kNumbersOfBlock;
  const std::optional<BlockKey> key = ParseBlockKey(cursor->key());
  const std::optional<PostingBlock> block = DecodePostingHead(cursor->value());
  if (!key || !block || key->list != list) return 0;
  std::string last = list;
  AppendLastBlock(&last);
  return key->end == PostingBlock::kNoEnd ? block->count : (cursor->CountAbout(last) + 1) * std::max<std::uint64_t>(block->count, 1);
}

std::optional<TextSearch::Size> TextSearch::SizeOf(const Node& node) {
  const auto found = sizes_.find(&node);
  if (found != sizes_.end()) return found->second;
  const std::optional<Size> size = ComputeSize(node);
  sizes_.emplace(&node, size);
  return size;
}

std::optional<TextSearch::Size> TextSearch::ComputeSize(const Node& node) {
  switch (node.op) {
    case Op::kAnd: {
      std::optional<Size> all;
      for (const auto& child : node.children) {
        const auto size = SizeOf(*child);
        if (size) all = all ? Size{std::min(all->rows, size->rows), all->numbers + size->numbers} : *size;
      }
      return all;
    }
    case Op::kOr: {
      Size any{};
      for (const auto& child : node.children) {
        const auto size = SizeOf(*child);
        if (!size) return std::nullopt;
        any = {std::min(kAll, any.rows + size->rows), any.numbers + size->numbers};
      }
      return any;
    }
    case Op::kNot: {
      const auto size = SizeOf(*node.children[0]);
      return size ? std::optional(Size{kAll, size->numbers}) : std::nullopt;
    }
    default:
      break;
  }
  const std::optional<Lists> lists = ListsOf(node);
  if (!lists) return std::nullopt;
  std::uint64_t sum = 0, least = kAll;
  for (const std::string& word : lists->words) {
    const std::uint64_t size = SizeAbout(lists->index->List(word), lists->is_prefix);
    sum += size;
    least = std::min(least, size);
  }
  return Size{lists->is_union ? std::min(sum, kAll) : least, sum};
}

// A block that a writer splits meanwhile may appear in a leaf that the cursor has left. Then the next block
// does not begin where the last one ended, and the cursor goes back to the part between.
Status TextSearch::Read(const std::string& list, bool is_prefix, const RowSet* among, std::vector<RowNumber>* out) {
  static constexpr std::uint64_t kNumbersOfSeek = 256;
  static constexpr int kReturnsMax = 1000;  // no writer splits a block as often between two moves
  const Numbers* const wanted = among == nullptr || among->is_complement || is_prefix ? nullptr : &among->numbers;
  const bool seeks = wanted != nullptr && wanted->size() < SizeAbout(list, false) / kNumbersOfSeek;
  if (seeks && wanted->empty()) return absl::OkStatus();
  std::string present = list, target;                // the list that is being read
  std::uint64_t next = seeks ? wanted->front() : 0;  // the least number of the list that is still looked for
  std::size_t next_wanted = 0;
  int num_returns = 0;
  bool has_sought = false;  // the block of `next`
  PooledCursor cursor(core_);
  const auto seek = [&] {
    target = present;
    AppendBlock(static_cast<std::uint32_t>(next + 1), &target);
    cursor->JumpBriefly(target);
  };
  seeks ? seek() : cursor->Jump(FirstBlock(list));
  for (;;) {
    HAKO_RETURN_IF_ERROR(cursor->status());
    if (effort_ != nullptr && !effort_->Take()) return effort_->error();
    const bool is_inside = cursor->Valid() && cursor->key().starts_with(list);
    const std::optional<BlockKey> key = is_inside ? ParseBlockKey(cursor->key()) : std::nullopt;
    if (is_inside && !key) return absl::DataLossError("the key of a posting list is damaged");
    if (is_prefix && key && next == 0) present = key->list;
    const bool is_same = key && key->list == present;
    if (!is_same && next == 0) return absl::OkStatus();  // behind the last list
    const std::optional<PostingBlock> head = is_same ? DecodePostingHead(cursor->value()) : std::nullopt;
    if (is_same && !head) return DamagedPostingsError();
    if (!is_same && (has_sought || seeks)) {  // the rest of the list was removed
      if (!is_prefix) return absl::OkStatus();
      next = 0;
      has_sought = false;
      continue;
    }
    if (!is_same || head->begin > next) {
      if (++num_returns > kReturnsMax) return absl::DataLossError("a posting list lacks a block");
      seek();
      has_sought = true;
      continue;
    }
    has_sought = false;
    if (!DecodePostings(cursor->value(), key->end, out)) return DamagedPostingsError();
    const bool is_last = key->end == PostingBlock::kNoEnd;
    if (seeks) {
      while (next_wanted < wanted->size() && (*wanted)[next_wanted] < key->end) ++next_wanted;
      if (next_wanted == wanted->size()) return absl::OkStatus();
      next = (*wanted)[next_wanted];
      seek();
      continue;
    }
    if (is_last && !is_prefix) return absl::OkStatus();
    next = is_last ? 0 : key->end;
    cursor->Next();
  }
}

StatusOr<RowSet> TextSearch::FindInLists(const Lists& lists, const RowSet* among) {
  RowSet set{.numbers = {}, .is_complement = false, .is_exact = lists.is_exact};
  if (std::find(used_.begin(), used_.end(), lists.index) == used_.end()) used_.push_back(lists.index);
  if (lists.is_prefix || lists.is_union) {
    for (const std::string& word : lists.words) HAKO_RETURN_IF_ERROR(Read(lists.index->List(word), lists.is_prefix, among, &set.numbers));
    SortUnique(&set.numbers);
    return set;
  }
  std::vector<std::pair<std::uint64_t, std::string>> by_size;
  for (const std::string& word : lists.words) {
    std::string list = lists.index->List(word);
    const std::uint64_t size = lists.words.size() == 1 ? 0 : SizeAbout(list, false);
    by_size.emplace_back(size, std::move(list));
  }
  std::sort(by_size.begin(), by_size.end());
  for (std::size_t i = 0; i < by_size.size(); ++i) {
    if (i != 0 && !set.numbers.empty() && !Pays(by_size[i].first, set.numbers.size())) {
      set.is_exact = false;
      break;
    }
    Numbers numbers;
    HAKO_RETURN_IF_ERROR(Read(by_size[i].second, false, i == 0 ? among : &set, &numbers));
    SortUnique(&numbers);
    set.numbers = i == 0 ? std::move(numbers) : InBoth(set.numbers, numbers);
    if (set.numbers.empty()) break;
  }
  return set;
}

StatusOr<RowSet> TextSearch::Find(const Node& node, const RowSet* among) {
  switch (node.op) {
    case Op::kAnd: {
      std::vector<std::pair<std::uint64_t, const Node*>> by_size;
      RowSet all{.numbers = {}, .is_complement = true, .is_exact = true};
      for (const auto& child : node.children) {
        if (const auto size = SizeOf(*child))
          by_size.emplace_back(size->rows, child.get());
        else
          all.is_exact = false;
      }
      std::sort(by_size.begin(), by_size.end());
      for (const auto& [rows, child] : by_size) {
        HAKO_ASSIGN_OR_RETURN(const RowSet set, Find(*child, all.is_complement ? among : &all));
        all = Intersection(all, set);
      }
      return all;
    }
    case Op::kOr: {
      RowSet any;
      for (const auto& child : node.children) {
        HAKO_ASSIGN_OR_RETURN(RowSet set, Find(*child, among));
        any = Union(std::move(any), std::move(set));
      }
      return any;
    }
    case Op::kNot: {
      HAKO_ASSIGN_OR_RETURN(RowSet set, Find(*node.children[0], among));
      if (set.is_exact) return Complement(std::move(set));
      return RowSet{.numbers = {}, .is_complement = true, .is_exact = false};  // any row
    }
    default: {
      const std::optional<Lists> lists = ListsOf(node);
      HAKO_DCHECK(lists.has_value());
      return FindInLists(*lists, among);
    }
  }
}

}  // namespace hako::table
