// The words in which a store of records and an index over them speak to each other.
#pragma once

#include <cstdint>
#include <string_view>

namespace hako::hash {

struct RecordView {
  std::string_view key;
  std::string_view value;
};

enum class Match {
  kNo,       // another key
  kYes,      // this key
  kDamaged,  // what lies there cannot be a record (or a writer is at work there)
  kFailed,   // the device failed
};

// What an optimistic fetch took along; judged after the version was found to hold.
struct FetchedCopy {
  const char* value = nullptr;  // where the sink had the value copied; nullptr = it did not want it
  std::uint64_t key_size = 0;
  std::uint64_t value_size = 0;
  std::uint64_t place = 0;  // what the check is keyed by
  std::uint32_t check = 0;
};

// A record copied out: the key, and the value right behind it.
struct RecordCopy {
  const char* bytes = nullptr;
  std::uint64_t key_size = 0;
  std::uint64_t value_size = 0;
  std::string_view key() const { return {bytes, key_size}; }
  std::string_view value() const { return {bytes + key_size, value_size}; }
};

enum class IndexExtent { kHomeLines, kOverflowLines };

}  // namespace hako::hash
