// The limit of a database in memory, beyond which records are evicted. A value of at most a quarter of the
// bytes and a batch of at most half of them are accepted, except as dbm/tiny_dbm.h and dbm/baby_dbm.h say.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"

namespace hako {

struct Capacity {
  static constexpr std::uint64_t kBytesMin = 1 << 20, kRecordsMin = 1000;

  std::uint64_t bytes = 0;    // of memory; 0 = no limit
  std::uint64_t records = 0;  // 0 = no limit

  bool IsLimited() const { return (bytes | records) != 0; }
  // Returns InvalidArgument for a limit below the minimum. The message names the limit as a member
  // of `options`.
  Status Check(std::string_view options) const {
    const auto too_small = [&](std::string_view name, std::uint64_t value, std::uint64_t least) {
      return absl::InvalidArgumentError(
          absl::StrCat(ToAbsl(options), "::", ToAbsl(name), " must be 0, for no limit, or at least ", least, ", and is ", value));
    };
    if (bytes != 0 && bytes < kBytesMin) return too_small("capacity_bytes", bytes, kBytesMin);
    if (records != 0 && records < kRecordsMin) return too_small("capacity_records", records, kRecordsMin);
    return absl::OkStatus();
  }
  // Returns OutOfRange for a value of more than a quarter of the bytes.
  Status CheckValue(std::uint64_t size) const {
    return bytes != 0 && size > bytes / 4 ? TooLargeError("a value", size, bytes / 4) : absl::OkStatus();
  }
  // Returns OutOfRange for a batch of more than half of the bytes.
  Status CheckBatchBytes(std::uint64_t batch) const {
    return bytes != 0 && batch > bytes / 2 ? TooLargeError("a batch", batch, bytes / 2) : absl::OkStatus();
  }
  // Returns OutOfRange for a batch of more than half of the records.
  Status CheckBatch(std::uint64_t batch) const {
    if (records == 0 || batch <= records / 2) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat("a batch of ", batch, " records exceeds the limit of ", records / 2, " records"));
  }
};

}  // namespace hako
