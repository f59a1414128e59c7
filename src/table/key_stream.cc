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

bool NumberStream::Next() {
  while (at_ < set_->numbers.size()) {
    const RowNumber number = set_->numbers[at_++];
    if (effort_ != nullptr && !effort_->Take()) {
      status_ = effort_->error();
      return false;
    }
    if (number / kKeysOfBlock != number_of_block_) {
      number_of_block_ = number / kKeysOfBlock;
      const Status read = core_.store->FetchTo(KeyBlockKey(number / kKeysOfBlock), &bytes_);
      const bool is_there = read.ok();
      if (!is_there && !absl::IsNotFound(read)) status_ = read;
      block_.Clear();
      if (is_there && !block_.Decode(bytes_)) status_ = DamagedKeyBlockError();
      if (!status_.ok()) return false;
    }
    if (!block_.has(number % kKeysOfBlock)) continue;  // the row was removed meanwhile
    key_ = block_.key(number % kKeysOfBlock);
    return true;
  }
  return false;
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
