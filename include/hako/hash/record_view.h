// The types that pass between a record space and its index.
#pragma once

#include <cstdint>
#include <string_view>

#include "hako/base/language.h"

namespace hako::hash {

struct RecordView {
  std::string_view key;
  std::string_view value;
};

enum class Match {
  kNo,       // another key
  kYes,      // this key
  kDamaged,  // not a record, or a writer is changing it
  kFailed,   // the device failed
};

// The copy that an optimistic fetch has made. The caller checks it after it has found the version
// current.
struct FetchedCopy {
  const char* value = nullptr;  // where the sink wanted the value; nullptr = nowhere
  std::uint64_t key_size = 0;
  std::uint64_t value_size = 0;
  std::uint64_t place = 0;  // one of the keys of the check
  std::uint32_t check = 0;
};

// A copied record: the key, and the value right after it.
struct RecordCopy {
  const char* bytes = nullptr;
  std::uint64_t key_size = 0;
  std::uint64_t value_size = 0;
  std::string_view key() const { return {bytes, key_size}; }
  std::string_view value() const { return {bytes + key_size, value_size}; }
};

enum class IndexExtent { kHomeLines, kOverflowLines };

}  // namespace hako::hash
