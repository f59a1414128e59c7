// An intent lists the changes of several records that a process makes in one step. If the process
// is killed before it has made all of them, the next process completes them.
//
// An intent is a record with an empty key, whose value is an array of entries and whose stamp stays
// unborn: no bucket names it, and a scan of the file takes it for free space. It is valid while one
// of the intent words of the file (format/hash_file_format.h) has its handle.
#pragma once

#include <cstdint>

#include "hako/base/language.h"

namespace hako::format {

// One change: the bucket of the key's hash names `fresh` instead of `handle`. A handle of 0 means
// no entry. If both are 0, `key_hash` is the applied index that the file gets.
struct IntentEntry {
  std::uint64_t key_hash;
  std::uint32_t handle;
  std::uint32_t fresh;
};
static_assert(sizeof(IntentEntry) == 16);

}  // namespace hako::format
