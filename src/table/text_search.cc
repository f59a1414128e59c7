#include "hako/table/text_search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "hako/base/assert.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/table/filter.h"
#include "hako/table/index_key.h"
#include "hako/table/key_stream.h"
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

// Adds the numbers of a block.
bool AddNumbers(const Index& index, std::string_view block, std::uint64_t end, Numbers* out) {
  std::string_view unused;
  return DecodePostings(block, end, out, index.has_positions() ? &unused : nullptr).has_value();
}

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
// q-grams where it occurs. Their positions tell whether they follow each other in a row.
std::optional<TextSearch::Lists> TextSearch::GramsOf(const Node& node, const Index& index) const {
  static constexpr std::size_t kGramsMax = 8, kPatternMax = 128;
  const std::string_view given = node.values[0].get().bytes(), pattern = WithoutCutCharacters(given);
  const std::size_t size = NumCharacters(pattern);
  if (pattern.empty()) return std::nullopt;
  const bool is_beginning = node.op == Op::kBegins;
  if (index.has_positions() && (size > index.options().q || (size == index.options().q && is_beginning)) && size <= kPatternMax &&
      pattern.size() == given.size() && pattern.find('\0') == pattern.npos) {
    Lists lists{.index = &index, .by_size = {}, .offsets = OffsetsOfGrams(pattern, index.options().q), .is_exact = node.op != Op::kEnds};
    for (const auto& [gram, offsets] : lists.offsets) lists.by_size.emplace_back(0, index.List(gram));
    return lists;
  }
  Lists lists{.index = &index, .by_size = {}, .is_exact = node.op == Op::kContains && pattern.size() == given.size()};
  if (size <= index.options().q) {
    if (pattern.find('\0') != pattern.npos) return std::nullopt;
    lists.by_size.emplace_back(0, index.List(pattern));
    lists.is_prefix = size < index.options().q;
    return lists;
  }
  lists.is_exact = false;
  std::vector<std::string> words;
  ForEachGram(pattern, index.options().q, [&words](std::string_view gram) {
    if (gram.find('\0') == gram.npos) words.emplace_back(gram);
  });
  for (std::size_t kept = 0; words.size() > kGramsMax && kept < kGramsMax; ++kept)
    words[kept] = words[kept * (words.size() - 1) / (kGramsMax - 1)];
  words.resize(std::min(words.size(), kGramsMax));
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  for (const std::string& word : words) lists.by_size.emplace_back(0, index.List(word));
  return words.empty() ? std::nullopt : std::optional(std::move(lists));
}

std::optional<TextSearch::Lists> TextSearch::ListsOf(const Node& node) const {
  if (node.is_key || node.is_numeric) return std::nullopt;
  std::optional<Lists> best;
  for (const Index* const index : indices_) {
    if (node.column != index->options().columns[0].column) continue;
    if (index->parts()[0].kind == IndexKind::kToken) {
      if (node.op < Op::kAllWords || node.op > Op::kPhrase || (node.op != Op::kAnyWord && node.words.empty())) continue;
      Lists lists{.index = index, .by_size = {}, .is_union = node.op == Op::kAnyWord, .is_exact = true};
      std::vector<std::string> words = node.words;
      if (node.op == Op::kPhrase) {
        lists.is_exact = words.size() == 1 || index->has_positions();
        if (words.size() > 1 && index->has_positions()) lists.offsets = OffsetsOfWords(words);
        std::sort(words.begin(), words.end());
        words.erase(std::unique(words.begin(), words.end()), words.end());
      }
      for (const std::string& word : words) lists.by_size.emplace_back(0, index->List(word));
      if (!best || lists.is_exact || !best->is_exact) best = std::move(lists);
    } else if (node.op == Op::kContains || node.op == Op::kBegins || node.op == Op::kEnds) {
      std::optional<Lists> lists = GramsOf(node, *index);
      const bool is_better = best && lists && (best->is_prefix == lists->is_prefix ? lists->is_exact && !best->is_exact : best->is_prefix);
      if (lists && (!best || is_better)) best = std::move(lists);
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
  const std::uint64_t count = std::max<std::size_t>(block->count, 1), end = key->end;
  if (end == PostingBlock::kNoEnd) return block->count;
  std::string last = list;
  AppendLastBlock(&last);
  const std::uint64_t most = (cursor->CountAbout(last) + 1) * count;
  // Blocks are longer than most records, of which as many are counted as a page has on average. So the numbers are
  // taken to be as dense as in the first block, within bounds.
  cursor->JumpBriefly(last);
  const std::optional<PostingBlock> rest = cursor->Valid() && cursor->key() == last ? DecodePostingHead(cursor->value()) : std::nullopt;
  const std::uint64_t dense = rest && end != 0 ? rest->begin / end * count + rest->begin % end * count / end + rest->count : most;
  return std::clamp(dense, most / 16, most);
}

std::optional<TextSearch::Size> TextSearch::SizeOf(const Node& node) { return Serve(node).size; }

const TextSearch::Served& TextSearch::Serve(const Node& node) {
  const auto found = served_.find(&node);
  if (found != served_.end()) return found->second;
  Served served;
  if (node.op == Op::kAnd || node.op == Op::kOr || node.op == Op::kNot) {
    served.size = SizeOfParts(node);
  } else if ((served.lists = ListsOf(node))) {
    auto& by_size = served.lists->by_size;
    for (auto& [size, list] : by_size) size = SizeAbout(list, served.lists->is_prefix);
    std::sort(by_size.begin(), by_size.end());
    if (!served.lists->offsets.empty() && node.op != Op::kPhrase) KeepNeeded(&*served.lists);
    std::uint64_t sum = 0, least = kAll;
    for (const auto& [size, list] : by_size) {
      sum += size;
      least = std::min(least, size);
    }
    served.size = Size{served.lists->is_union ? std::min(sum, kAll) : least, sum, served.lists->is_prefix};
  }
  return served_.emplace(&node, std::move(served)).first->second;
}

std::optional<TextSearch::Size> TextSearch::SizeOfParts(const Node& node) {
  std::optional<Size> all;
  for (const auto& child : node.children) {
    const std::optional<Size> size = SizeOf(*child);
    if (!size && node.op != Op::kAnd) return std::nullopt;
    if (!size) continue;
    if (!all)
      all = size;
    else
      *all = {node.op == Op::kAnd ? std::min(all->rows, size->rows) : std::min(kAll, all->rows + size->rows), all->numbers + size->numbers,
              all->has_prefixes || size->has_prefixes};
  }
  if (node.op == Op::kOr && !all) all = Size{};  // of no parts
  if (node.op == Op::kNot) all->rows = kAll;
  return all;
}

void TextSearch::SetWindow(std::uint64_t begin, std::uint64_t end, double part) {
  begin_ = begin;
  end_ = end;
  part_ = part;
}

bool TextSearch::Pays(std::uint64_t count, std::uint64_t num_rows) const {
  return static_cast<double>(count) * part_ < static_cast<double>(num_rows * kNumbersOfRow);
}

std::vector<const Index*> TextSearch::IndicesFor(std::span<const Node* const> nodes) {
  std::vector<const Index*> indices;
  const auto add = [&](const auto& again, const Node& node) -> void {
    const Served& served = Serve(node);
    if (served.lists && std::find(indices.begin(), indices.end(), served.lists->index) == indices.end())
      indices.push_back(served.lists->index);
    for (const auto& child : node.children) again(again, *child);
  };
  for (const Node* const node : nodes) add(add, *node);
  return indices;
}

Status TextSearch::ReadBlocks(const std::string& list, std::uint64_t size, const Numbers* wanted, TakeBlock take) {
  static constexpr std::uint64_t kNumbersOfSeek = 256;
  const bool seeks = wanted != nullptr && static_cast<double>(wanted->size() * kNumbersOfSeek) < static_cast<double>(size) * part_;
  if (seeks && wanted->empty()) return absl::OkStatus();
  const std::uint64_t first = seeks ? wanted->front() : begin_;
  PooledCursor cursor(core_);
  if (first == 0) cursor->Jump(FirstBlock(list));
  return ReadRest(cursor, list, first, end_, seeks ? std::span(*wanted) : std::span<const RowNumber>(), take);
}

Status TextSearch::Read(const Index& index, const std::string& list, std::uint64_t size, const Numbers* wanted, Numbers* out) {
  const std::size_t before = out->size();
  HAKO_RETURN_IF_ERROR(ReadBlocks(list, size, wanted, [&](auto block, auto end) { return AddNumbers(index, block, end, out); }));
  if (!IsWindow()) return absl::OkStatus();
  const auto added = out->begin() + static_cast<std::ptrdiff_t>(before);
  out->erase(std::lower_bound(added, out->end(), end_), out->end());
  out->erase(added, std::lower_bound(added, out->end(), begin_));
  return absl::OkStatus();
}

Status TextSearch::ReadAll(const Index& index, const std::string& beginning, Numbers* out) {
  PooledCursor cursor(core_);
  std::string list = FirstBlock(beginning);
  for (cursor->Jump(list); cursor->Valid() && cursor->key().starts_with(beginning);) {
    const std::optional<BlockKey> key = ParseBlockKey(cursor->key());
    if (!key) return absl::DataLossError("the key of a posting list is damaged");
    list = key->list;
    HAKO_RETURN_IF_ERROR(
        ReadRest(cursor, list, 0, PostingBlock::kNoEnd, {}, [&](auto block, auto end) { return AddNumbers(index, block, end, out); }));
    const std::optional<BlockKey> last = cursor->Valid() ? ParseBlockKey(cursor->key()) : std::nullopt;
    if (last && last->list == list) cursor->Next();  // else the rest of the list was removed
  }
  HAKO_RETURN_IF_ERROR(cursor->status());
  if (IsWindow()) std::erase_if(*out, [this](RowNumber number) { return number < begin_ || number >= end_; });
  return absl::OkStatus();
}

// A block that a writer splits meanwhile may appear in a leaf that the cursor has left. Then the next block
// does not begin where the last one ended, and the cursor goes back to the part between.
Status TextSearch::ReadRest(PooledCursor& cursor, const std::string& list, std::uint64_t next, std::uint64_t end,
                            std::span<const RowNumber> wanted, TakeBlock take) {
  static constexpr int kReturnsMax = 1000;  // no writer splits a block as often between two moves
  std::string target;
  bool has_sought = false;  // the block of `next`
  const auto seek = [&] {
    target = list;
    AppendBlock(static_cast<std::uint32_t>(next + 1), &target);
    cursor->JumpBriefly(target);
    has_sought = true;
  };
  if (next != 0) seek();
  for (int num_returns = 0;;) {
    HAKO_RETURN_IF_ERROR(cursor->status());
    if (effort_ != nullptr && !effort_->Take()) return effort_->error();
    const bool is_inside = cursor->Valid() && cursor->key().starts_with(list);
    const std::optional<BlockKey> key = is_inside ? ParseBlockKey(cursor->key()) : std::nullopt;
    if (is_inside && !key) return absl::DataLossError("the key of a posting list is damaged");
    const bool is_same = key && key->list == list;
    if (!is_same && (has_sought || next == 0)) return absl::OkStatus();  // there is no list, or its rest was removed
    const std::optional<PostingBlock> head = is_same ? DecodePostingHead(cursor->value()) : std::nullopt;
    if (is_same && !head) return DamagedPostingsError();
    if (!is_same || head->begin > next) {
      if (++num_returns > kReturnsMax) return absl::DataLossError("a posting list lacks a block");
      seek();
      continue;
    }
    if (!take(cursor->value(), key->end)) return DamagedPostingsError();
    next = key->end;
    has_sought = false;
    while (!wanted.empty() && wanted.front() < next) {
      wanted = wanted.subspan(1);
      if (wanted.empty()) return absl::OkStatus();
    }
    if (next >= end) return absl::OkStatus();
    if (wanted.empty()) {
      cursor->Next();
    } else {
      next = wanted.front();
      seek();
    }
  }
}

// Removes the longest lists of q-grams, as long as the others cover the substring.
void TextSearch::KeepNeeded(Lists* lists) {
  std::vector<const PatternOffsets::value_type*> grams;
  for (const auto& [size, list] : lists->by_size) grams.push_back(lists->OffsetsOf(list));
  RemoveCovered(&grams);
  std::erase_if(lists->by_size, [&](const auto& one) { return std::ranges::count(grams, lists->OffsetsOf(one.second)) == 0; });
}

StatusOr<RowSet> TextSearch::FindByPositions(const Node& node, const Lists& lists, const Numbers* wanted) {
  static constexpr std::size_t kTestedMax = 64;
  PositionMatch match(node.op == Op::kBegins, begin_, end_);
  RowSet set{.numbers = {}, .is_complement = false, .is_exact = lists.is_exact};
  for (const auto& [size, list] : lists.by_size) {
    const bool is_first = list == lists.by_size[0].second;
    if (!is_first && set.numbers.empty()) break;
    if (!is_first && !Pays(size, set.numbers.size())) {
      set.is_exact = false;
      break;
    }
    match.BeginList(lists.OffsetsOf(list)->second);
    HAKO_RETURN_IF_ERROR(ReadBlocks(list, size, wanted, [&match](auto block, auto end) { return match.TakeBlock(block, end); }));
    set.numbers = match.EndList();
    wanted = &set.numbers;
  }
  if (!set.is_exact) return set;
  const Numbers undecided = match.Undecided();
  set.is_exact = undecided.size() <= std::max(kTestedMax, set.numbers.size() / 2);  // else the query reads nearly as many rows
  if (set.is_exact) HAKO_RETURN_IF_ERROR(TestRows(node, *lists.index, undecided, &set.numbers));
  return set;
}

Status TextSearch::TestRows(const Node& node, const Index& index, const Numbers& rows, Numbers* numbers) {
  if (rows.empty()) return absl::OkStatus();
  Numbers kept;
  std::string bytes;
  NumberKeys keys(core_);
  for (const RowNumber number : rows) {
    if (effort_ != nullptr && !effort_->Take()) return effort_->error();
    HAKO_ASSIGN_OR_RETURN(const std::optional<std::string_view> key, keys.KeyOf(number));
    if (!key) continue;  // the row was removed meanwhile
    const Status read = core_.FetchRow(*key, &bytes);
    if (!read.ok() && !absl::IsNotFound(read)) return read;
    if (effort_ != nullptr && !effort_->TakeRow(bytes.size())) return effort_->error();
    if (!read.ok() || NumberOfRow(bytes) != number) continue;  // the same
    if (MeetsLeaf(node, RowView(bytes, &core_.catalogue.names()).Get(index.parts()[0].column), effort_)) kept.push_back(number);
  }
  *numbers = InEither(Without(*numbers, rows), kept);
  return absl::OkStatus();
}

StatusOr<RowSet> TextSearch::FindInLists(const Node& node, const Lists& lists, const RowSet* among) {
  RowSet set{.numbers = {}, .is_complement = false, .is_exact = lists.is_exact};
  const Numbers* wanted = among == nullptr || among->is_complement ? nullptr : &among->numbers;
  if (!lists.offsets.empty()) return FindByPositions(node, lists, wanted);
  if (lists.is_prefix || lists.is_union) {
    for (const auto& [size, list] : lists.by_size)
      HAKO_RETURN_IF_ERROR(lists.is_prefix ? ReadAll(*lists.index, list, &set.numbers)
                                           : Read(*lists.index, list, size, wanted, &set.numbers));
    SortUnique(&set.numbers);
    return set;
  }
  for (std::size_t i = 0; i < lists.by_size.size(); ++i) {
    const auto& [size, list] = lists.by_size[i];
    if (i != 0 && !Pays(size, set.numbers.size())) {
      set.is_exact = false;
      break;
    }
    Numbers numbers;
    HAKO_RETURN_IF_ERROR(Read(*lists.index, list, size, wanted, &numbers));
    SortUnique(&numbers);
    set.numbers = i == 0 ? std::move(numbers) : InBoth(set.numbers, numbers);
    if (set.numbers.empty()) break;
    wanted = &set.numbers;
  }
  return set;
}

StatusOr<RowSet> TextSearch::FindAll(std::span<const Node* const> nodes, std::uint64_t* exact) {
  std::vector<std::pair<Size, std::size_t>> by_size;
  for (std::size_t i = 0; i < nodes.size(); ++i) by_size.emplace_back(*SizeOf(*nodes[i]), i);
  std::sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a.first.rows < b.first.rows; });
  RowSet all{.numbers = {}, .is_complement = true, .is_exact = true};
  *exact = 0;
  for (const auto& [size, i] : by_size) {
    if (!all.is_complement && all.numbers.empty()) break;
    if (!all.is_complement && !Pays(size.numbers, all.numbers.size())) continue;
    HAKO_ASSIGN_OR_RETURN(const RowSet set, Find(*nodes[i], all.is_complement ? nullptr : &all));
    if (set.is_exact && i < 64) *exact |= std::uint64_t{1} << i;
    all = Intersection(all, set);
  }
  if (!all.is_complement && all.numbers.empty()) *exact = ~std::uint64_t{0};  // no row meets them all
  return all;
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
      const Served& served = Serve(node);
      HAKO_DCHECK(served.lists.has_value());
      return FindInLists(node, *served.lists, among);
    }
  }
}

}  // namespace hako::table
