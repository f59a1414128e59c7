// The File concept and its refinements: what an engine asks of the device that holds its bytes.
//
// A File is thin on purpose. Opening by path, locking and tuning belong to each file type; an engine receives a file that is open.
// Refinements are asked for with `if constexpr`; code must work without them.
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "hako/base/status.h"

namespace hako {

// Bytes on a device, [0, Size()).
//
// Resize zero-fills and really allocates: once it is OK, a write inside the size cannot fail for lack of space. ReadAt and WriteAt may run
// beside each other: where a read meets a write, each byte is as before or as after; a byte has one writer at a time. Resize may run
// beside accesses below both sizes, but not beside another Resize. After Sync() is OK, earlier writes survive a power cut; nothing is
// promised about the order or the tearing of writes that no Sync followed. A read or write outside [0, Size()) is OutOfRange. Close reports
// the last error and is called by the destructor where the owner did not; after Close nothing else may be called.
template <class F>
concept File = std::movable<F> &&
    requires(F& f, const F& cf, std::uint64_t offset, std::span<std::byte> out, std::span<const std::byte> in) {
  { cf.Size() } -> std::same_as<std::uint64_t>;
  { cf.IsWritable() } -> std::same_as<bool>;
  { cf.ReadAt(offset, out) } -> std::same_as<Status>;
  { f.WriteAt(offset, in) } -> std::same_as<Status>;
  { f.Resize(offset) } -> std::same_as<Status>;
  { f.Sync() } -> std::same_as<Status>;
  { f.Close() } -> std::same_as<Status>;
};

// Bytes in the address space. Growth never moves the base: a view stays valid until Close. SyncRange is Sync for one range (and for the
// file's size). A read-only file may still be stored to through MutableView: the stores are private to this handle and never reach the
// device, which lets an engine recover a file in memory without changing it.
template <class F>
concept MappedFile = File<F> && requires(F& f, const F& cf, std::uint64_t offset, std::size_t size) {
  { cf.View(offset, size) } -> std::same_as<std::span<const std::byte>>;  // REQUIRES: inside Size()
  { f.MutableView(offset, size) } -> std::same_as<std::span<std::byte>>;  // REQUIRES: inside Size()
  { f.SyncRange(offset, size) } -> std::same_as<Status>;
};

// Which page cache of which file (file/file_identity.h). Equal identities at two opens say that nothing happened to the page cache since:
// it still holds what a killed process stored through a map. A copied file, another boot or another mount has another identity.
struct FileIdentity {
  std::array<std::byte, 16> boot_id{};  // of the boot, the mounted file system and the generation of the inode
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// A file whose unsynced stores outlive the process (but not the machine).
template <class F>
concept KernelBackedFile = File<F> && requires(const F& cf) {
  { cf.Identity() } -> std::same_as<FileIdentity>;
};

struct ReadRequest {
  std::uint64_t offset;
  std::span<std::byte> out;
};
struct WriteRequest {
  std::uint64_t offset;
  std::span<const std::byte> in;
};

// Many transfers in flight at once; returns when all are done, with the first error. No two of a call overlap where one is a write.
template <class F>
concept BatchFile = File<F> && requires(F& f, std::span<const ReadRequest> reads, std::span<const WriteRequest> writes) {
  { f.ReadMulti(reads) } -> std::same_as<Status>;
  { f.WriteMulti(writes) } -> std::same_as<Status>;
};

// Accesses of the device, or of the system's page cache where there is no direct I/O, since Open; they can be asked for after Close.
struct FileCounters {
  std::uint64_t reads = 0, read_bytes = 0, writes = 0, written_bytes = 0;
};
template <class F>
concept CountingFile = File<F> && requires(const F& cf) {
  { cf.counters() } -> std::same_as<FileCounters>;
};

enum class OpenMode {
  kReadOnly,   // the file must exist; other readers may have it open too
  kReadWrite,  // the file must exist; nobody else may have it open
  kCreate,     // as kReadWrite, and an absent file is created
  kTruncate,   // as kCreate, and what the file held is dropped (after the lock is held)
};

struct FileOptions {
  OpenMode mode = OpenMode::kCreate;
  // How long to wait for another holder of the file; 0 = fail at once with Unavailable. What a killed process had in flight by direct I/O
  // holds the file until it is done: some milliseconds.
  std::chrono::milliseconds lock_timeout{0};
  // Address space reserved for a mapped file, in bytes: the largest size it can grow to while open. 0: a terabyte, and less for each of
  // many files of one process, down to 4 GiB, or where the system allows less (ulimit -v).
  std::uint64_t reserve_bytes = 0;
  // Space is allocated ahead of Size() in steps of an eighth of the size, within these bounds, in bytes; Close gives back the rest.
  std::uint64_t grow_min = std::uint64_t{2} << 20;
  std::uint64_t grow_max = std::uint64_t{1} << 30;
  // Mapped files: asks for pages of 2 MiB for what the file grows by, which make random access faster by a third and filling a file cheaper
  // by far. The price: a store dirties 2 MiB, not 4 KiB. Databases do not ask for them where each update is synced (Durability::kPower) or
  // there is a sync_interval, and a file that is synced eight times within a second leaves them (file/map_paging.h). A hint; the system may
  // do either. Without effect where grow_min is less than such a page.
  bool huge_pages = true;
  // Positional files: transfers go past the system's page cache (O_DIRECT), through a block cache of the file's own. For data far larger
  // than memory. InvalidArgument where the file system has no direct I/O.
  bool direct = false;
  // Direct I/O: bytes of a block, a power of two; 0 = what the device asks for, at least 4096.
  std::uint64_t block_size = 0;
  // Direct I/O: bytes of the block cache; 0 = none, but for a mebibyte of buffers that transfers need.
  std::uint64_t cache_bytes = std::uint64_t{64} << 20;
  // Direct I/O: Close leaves the file a whole number of blocks long, with zeros at the end.
  bool padding = false;
  // Positional files: each write is durable when it returns (O_DSYNC); of a file with a block cache, when the cache has written it.
  bool sync = false;
  // Direct I/O: adjacent blocks go in one transfer. Without it each block is a transfer of its own: only to measure what this is worth.
  bool batching = true;
};

// A file type that is opened by path.
template <class F>
concept PathFile = File<F> && requires(const std::string& path, const FileOptions& options) {
  { F::Open(path, options) } -> std::same_as<StatusOr<F>>;
};

}  // namespace hako
