#include "hako/table/key_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/endian.h"

namespace hako::table {
namespace {

int OrderOf(std::string_view a, std::string_view b) {
  if (a.size() >= 8 && b.size() >= 8) {
    const std::uint64_t x = LoadBigEndian(a.data()), y = LoadBigEndian(b.data());
    if (x != y) return x < y ? -1 : 1;
  }
  return a.compare(b);
}

}  // namespace

bool RangeStream::Next() {
  if (!is_started_) {
    is_started_ = true;
    cursor_.emplace(core_);
    if (!is_reversed_)
      range_.key_at != 0 ? cursor().JumpBriefly(range_.from) : cursor().Jump(range_.from);
    else
      cursor().JumpLower(range_.to.empty() ? std::string_view("\xff\xff") : std::string_view(range_.to), false);
  } else if (!cursor().Valid()) {
    return false;
  } else {
    is_reversed_ ? cursor().Previous() : cursor().Next();
  }
  return Show();
}

bool RangeStream::Seek(std::string_view key) {
  const std::size_t begin = range_.index == nullptr ? 1 : range_.key_at;
  if (target_.empty()) target_.assign(range_.from, 0, begin);
  target_.resize(begin);
  target_.append(key);
  if (!is_started_) cursor_.emplace(core_);
  is_started_&& cursor().Valid() ? cursor().JumpAhead(target_) : cursor().JumpBriefly(target_);
  is_started_ = true;
  return Show();
}

bool RangeStream::Show() {
  if (!cursor().Valid()) return false;
  const std::string_view record = cursor().key();
  if (is_reversed_ ? record < range_.from : !range_.to.empty() && record >= range_.to) return false;
  const bool is_row = range_.index == nullptr;
  if (is_row && record[0] != kRowSpace) return false;
  if (effort_ != nullptr && !(is_row ? effort_->TakeRow(cursor().value().size()) : effort_->Take())) {
    status_ = effort_->error();
    return false;
  }
  if (is_row) {
    key_ = record.substr(1);
    row_ = cursor().value();
    return true;
  }
  entry_ = record;
  if (range_.key_at != 0) {
    key_ = record.substr(range_.key_at);
    if (range_.index->is_covering()) row_ = cursor().value();
    return true;
  }
  const Index::RowOfEntry entry = range_.index->Row(record, cursor().value());
  if (!entry.ok) {
    status_ = absl::DataLossError(absl::StrCat("an entry of index ", range_.index->name(), " is damaged"));
    return false;
  }
  key_ = entry.key;
  if (range_.index->is_covering()) row_ = entry.covered;
  return true;
}

StatusOr<std::optional<std::string_view>> NumberKeys::KeyOf(RowNumber number) {
  const unsigned slot = number % kKeysOfBlock;
  const bool is_other = number / kKeysOfBlock != number_of_block_;
  if (is_other) {
    number_of_block_ = ~std::uint64_t{0};
    const Status read = core_.store->FetchTo(KeyBlockKey(number / kKeysOfBlock), &bytes_);
    if (!read.ok() && !absl::IsNotFound(read)) return read;
    if (!read.ok()) bytes_.clear();
    number_of_block_ = number / kKeysOfBlock;
  }
  if ((is_other || slot < slot_) && !reader_.Begin(bytes_)) return DamagedKeyBlockError();
  slot_ = slot;
  if (!reader_.has(slot)) return std::nullopt;
  if (!reader_.MoveTo(slot)) return DamagedKeyBlockError();
  return reader_.key();
}

bool NumberStream::Next() {
  while (at_ < set_->numbers.size()) {
    if (effort_ != nullptr && !effort_->Take()) {
      status_ = effort_->error();
      return false;
    }
    const StatusOr<std::optional<std::string_view>> key = keys_.KeyOf(set_->numbers[at_++]);
    status_ = key.status();
    if (!status_.ok()) return false;
    if (!key->has_value()) continue;  // the row was removed meanwhile
    key_ = **key;
    return true;
  }
  return false;
}

ZoneStream::ZoneStream(TableCore& core, const RecordRange& range, const Source& source, bool is_reversed, QueryEffort* effort)
    : core_(core),
      range_(range),
      source_(source),
      is_reversed_(is_reversed),
      effort_(effort),
      number_keys_(core),
      from_(std::string_view(range.from).substr(1)),
      to_(range.to[0] == kRowSpace ? std::string_view(range.to).substr(1) : std::string_view()),
      seen_(is_reversed),
      num_zones_(static_cast<double>(core.numbers.NumZones())) {
  static constexpr double kMargin = 1.5, kZonesMin = 8;
  zones_at_once_ = static_cast<std::size_t>(kZonesMin + kMargin * static_cast<double>(source.wanted) * num_zones_ /
                                                            static_cast<double>(source.num_rows + 1));
  known_ = {~std::uint64_t{0}, core.Moment()};
  core_.numbers.SeeNextZones(seen_, 1, from_, to_, &zones_);
}

bool ZoneStream::Next() {
  while (!rest_) {
    while (!found_.empty()) {
      if (num_looked_up_ < zones_.size() && !IsShownBefore(found_.front(), zones_[num_looked_up_].bound)) break;
      std::pop_heap(found_.begin(), found_.end(), OrderOfHeap());
      std::string key = std::move(found_.back());
      found_.pop_back();
      found_bytes_ -= key.size() + sizeof(std::string);
      if (has_shown_ && !IsShownBefore(shown_, key)) continue;  // the row was put again, with another number
      shown_ = std::move(key);
      has_shown_ = true;
      key_ = shown_;
      return true;
    }
    if (num_looked_up_ == zones_.size()) return false;
    if (num_looked_up_ == num_read_) status_ = FindMore();
    if (status_.ok()) status_ = LookUp(zones_[num_looked_up_++]);
    if (!status_.ok()) return false;
    if (found_bytes_ <= core_.sort_bytes) continue;
    found_ = {};
    rest_range_ = range_;
    if (has_shown_ && is_reversed_) rest_range_->to = RowKey(shown_);
    if (has_shown_ && !is_reversed_) rest_range_->from = RowKey(shown_).append(1, '\0');
    rest_.emplace(core_, *rest_range_, is_reversed_, effort_);
    known_ = {};
  }
  if (!rest_->Next()) return false;
  key_ = rest_->key();
  return true;
}

// Finds the rows of the next zones, and of twice as many the next time. Zones whose numbers follow each other
// are read together. One zone more is seen, whose bound tells which keys can be shown.
Status ZoneStream::FindMore() {
  zones_.erase(zones_.begin(), zones_.begin() + static_cast<std::ptrdiff_t>(num_looked_up_));
  num_looked_up_ = 0;
  core_.numbers.SeeNextZones(seen_, zones_at_once_, from_, to_, &zones_);
  num_read_ = std::min(zones_.size(), zones_at_once_);
  if (known_.moment && core_.Moment() != known_.moment) known_ = {};  // keys that were found before are shown, too
  zones_at_once_ *= 2;
  std::vector<std::uint64_t> indices;
  for (std::size_t i = 0; i < num_read_; ++i) indices.push_back(zones_[i].index);
  std::sort(indices.begin(), indices.end());
  numbers_.clear();
  for (std::size_t i = 0, next; i < indices.size(); i = next) {
    for (next = i + 1; next < indices.size() && indices[next] - indices[i] == next - i; ++next) {
    }
    const std::uint64_t begin = indices[i] * RowZones::kNumbersOfZone;
    const std::uint64_t end = std::min((indices[next - 1] + 1) * RowZones::kNumbersOfZone, PostingBlock::kNoEnd);
    source_.search->SetWindow(begin, end, static_cast<double>(next - i) / std::max(num_zones_, 1.0));
    std::uint64_t exact = 0, met = 0;
    HAKO_ASSIGN_OR_RETURN(const RowSet set, source_.search->FindAll(source_.nodes, &exact));
    HAKO_DCHECK(!set.is_complement);
    for (std::size_t node = 0; node < source_.bits.size() && node < 64; ++node) met |= (exact >> node & 1) != 0 ? source_.bits[node] : 0;
    known_.met &= met;
    numbers_.insert(numbers_.end(), set.numbers.begin(), set.numbers.end());
  }
  return absl::OkStatus();
}

Status ZoneStream::LookUp(const RowZones::Zone& zone) {
  const std::uint64_t begin = std::uint64_t{zone.index} * RowZones::kNumbersOfZone;
  for (auto at = std::lower_bound(numbers_.begin(), numbers_.end(), begin); at != numbers_.end() && *at - begin < RowZones::kNumbersOfZone;
       ++at) {
    if (effort_ != nullptr && !effort_->Take()) return effort_->error();
    HAKO_ASSIGN_OR_RETURN(const std::optional<std::string_view> key, number_keys_.KeyOf(*at));
    if (!key || *key < from_ || (!to_.empty() && *key >= to_)) continue;
    found_bytes_ += key->size() + sizeof(std::string);
    found_.emplace_back(*key);
    std::push_heap(found_.begin(), found_.end(), OrderOfHeap());
  }
  return absl::OkStatus();
}

bool SetStream::Next() {
  while (rows_.Next()) {
    const std::optional<RowNumber> number = NumberOfRow(*rows_.row());
    if (!number || !std::binary_search(set_->numbers.begin(), set_->numbers.end(), *number)) continue;
    key_ = rows_.key();
    row_ = rows_.row();
    return true;
  }
  return false;
}

bool IntersectionStream::Start() {
  static constexpr std::size_t kPartsMax = 3;
  is_started_ = true;
  std::vector<std::pair<std::uint64_t, std::unique_ptr<KeyStream>>> by_size;
  for (auto& part : parts_) {
    if (!part->Next()) {  // if a part is empty, so is the intersection
      status_ = part->status();
      parts_.clear();
      return false;
    }
    by_size.emplace_back(part->SizeHint(), std::move(part));
  }
  std::sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  parts_.clear();
  for (auto& [size, part] : by_size) {
    if (keeps_all_ || parts_.size() < kPartsMax) parts_.push_back(std::move(part));
  }
  return true;
}

// The smallest part and the next one alternate, because their keys are the farthest apart. Each
// other part only seeks keys that all parts before it have.
bool IntersectionStream::Agree() {
  for (std::size_t i = 1; i < parts_.size();) {
    const std::string_view wanted = parts_[0]->key();
    int order = OrderOf(parts_[i]->key(), wanted);
    if (order < 0) {
      if (!parts_[i]->Seek(wanted)) return false;
      order = OrderOf(parts_[i]->key(), wanted);
    }
    if (order > 0 && !parts_[0]->Seek(parts_[i]->key())) return false;
    i = order > 0 ? 1 : i + 1;
  }
  key_ = parts_[0]->key();
  return true;
}

bool UnionStream::Next() {
  for (; at_ < parts_.size(); ++at_) {
    if (parts_[at_].stream->Next()) {
      key_ = parts_[at_].stream->key();
      row_ = parts_[at_].stream->row();
      return true;
    }
    if (!parts_[at_].stream->status().ok()) return false;
    parts_[at_].stream.reset();  // frees its cursor, too
  }
  return false;
}

bool UnionStream::Takes(std::string_view key, const RowView& row) const {
  if (is_disjoint_) return true;
  for (std::size_t i = 0; i < at_; ++i) {
    if (parts_[i].filter.Matches(key, row)) return false;
  }
  return parts_[at_].filter.Matches(key, row) && parts_[at_].stream->Takes(key, row);
}

}  // namespace hako::table
