// Record numbers as the keys of a database: decimal text without sign, space or leading zeros. So each
// number has one key.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "hako/base/integer_arg.h"
#include "hako/base/status.h"
#include "hako/format/array_format.h"

namespace hako {

// The number of a record as an argument.
using RecordId = IntegerArg<std::uint64_t>;

// OutOfRange: no record has this number.
[[gnu::cold, gnu::noinline]] inline Status RecordIdError(RecordId id) {
  const std::uint64_t number = id;
  const std::string negative = id.IsNegative() ? absl::StrCat(" (", static_cast<std::int64_t>(number), ")") : std::string();
  return absl::OutOfRangeError(absl::StrCat("record number ", number, negative, " exceeds the limit of ", kRecordIdMax));
}

// The key of a record: RecordKey(17).view() is "17".
class RecordKey {
 public:
  static constexpr std::size_t kSizeMax = 13;  // bytes

  explicit RecordKey(std::uint64_t id = 0) {
    size_ = static_cast<std::size_t>(std::to_chars(bytes_, bytes_ + sizeof(bytes_), id).ptr - bytes_);
  }
  std::string_view view() const { return {bytes_, size_}; }

  // Returns the number that a key spells, or InvalidArgument if it spells none up to kRecordIdMax.
  static StatusOr<std::uint64_t> Parse(std::string_view key) {
    std::uint64_t id = 0;
    const char* const end = key.data() + key.size();
    const auto result = std::from_chars(key.data(), end, id);
    const bool is_number = !key.empty() && result.ec == std::errc() && result.ptr == end && (key[0] != '0' || key.size() == 1);
    if (is_number && id <= kRecordIdMax) return id;
    return Refusal(key);
  }

 private:
  [[gnu::cold, gnu::noinline]] static Status Refusal(std::string_view key) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key '", ToAbsl(key.substr(0, 32)), "' is not the number of a record: 0 to ", kRecordIdMax, ", in decimal"));
  }

  char bytes_[20];
  std::size_t size_;
};

// The order of record keys: that of the numbers.
struct RecordKeyComparator {
  // See Comparator (base/comparator.h).
  static constexpr std::string_view kName = "record number";
  static int Compare(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
    return a.compare(b);
  }
};

}  // namespace hako
