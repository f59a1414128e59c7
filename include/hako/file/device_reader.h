// Reads a file from its device rather than from the kernel's page cache, by a second descriptor that
// is open for direct I/O. The system first writes dirty pages of the cache to the device; the pages
// stay in the cache. So a reader sees the bytes of synchronized data that a power cut would leave,
// and finds a damaged sector although the cache has a good copy.
//
// The second descriptor is opened by the first read. It takes no lock, and closing it releases none.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"

namespace hako {

class DeviceReader {
 public:
  DeviceReader() = default;
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;
  ~DeviceReader() { Close(); }

  // Reads bytes of the file that `fd` has open; `path` names it in errors. Returns false, and reads
  // nothing, where the file system has no direct I/O.
  StatusOr<bool> Read(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out);

  // REQUIRES: no other thread reads (unchecked: reads are not counted)
  void Close();

 private:
  StatusOr<int> Open(int fd, const std::string& path);  // -1: there is no direct I/O

  sync::Mutex mutex_;
  bool is_tried_ ABSL_GUARDED_BY(mutex_) = false;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;  // -1: not open, or there is no direct I/O
};

}  // namespace hako
