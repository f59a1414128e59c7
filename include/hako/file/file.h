// The File concept and its refinements: the functions through which an engine uses the device that
// holds its bytes.
//
// A File has few functions. Opening by path, locking and tuning belong to each file type; an engine
// receives an open file. Engines test for refinements with `if constexpr` and must work without
// them.
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

// Bytes on a device, [0, Size()). Offsets and sizes are in bytes.
//
// Resize zero-fills and really allocates: once it returns OK, a write below the size cannot fail
// for lack of space. After Sync() returns OK, earlier writes survive a power cut; unsynchronized
// writes may be reordered or torn. A read or write outside [0, Size()) is OutOfRange. Close reports
// the last error; the destructor calls it if the owner has not. After Close no other function may
// be called.
//
// Threads: ReadAt and WriteAt are thread-safe. Where a read overlaps a write, each byte that is
// read is old or new. Each byte must have at most one writer at a time. Resize may run beside
// accesses below both sizes, but not beside another Resize.
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

// A file mapped into the address space. Growth never moves the base: a view stays valid until
// Close. SyncRange is Sync for one range and for the file's size. A read-only file allows stores
// through MutableView, which are private to this handle and never reach the device. So an engine
// can recover a read-only file in memory.
template <class F>
concept MappedFile = File<F> && requires(F& f, const F& cf, std::uint64_t offset, std::size_t size) {
  // REQUIRES for both: inside Size() (checked in MutableView)
  { cf.View(offset, size) } -> std::same_as<std::span<const std::byte>>;
  { f.MutableView(offset, size) } -> std::same_as<std::span<std::byte>>;
  { f.SyncRange(offset, size) } -> std::same_as<Status>;
};

// Makes a range of a file durable, or the whole file if it has no SyncRange.
template <File F>
Status SyncPart(F& file, std::uint64_t offset, std::size_t size) {
  if constexpr (MappedFile<F>) {
    return file.SyncRange(offset, size);
  } else {
    return file.Sync();
  }
}

// Identifies a file together with its content in the kernel's page cache (file/file_identity.h).
// Equal identities at two opens mean that the page cache has been kept since: it still holds
// everything that a killed process stored through a map. A copied file, another boot or a file system
// that was unmounted and mounted again has another identity. If only `boot` is the same, the bytes
// may still be complete, but only the person who copied the file or unmounted the file system can
// know.
struct FileIdentity {
  std::array<std::byte, 16> boot_id{};  // names the boot, the mounted file system and the life of the inode
  std::uint64_t device = 0;             // st_dev of stat(2), or the number of the file system
  std::uint64_t inode = 0;              // st_ino
  std::uint64_t boot = 0;               // names the boot alone; 0 = unknown
  // Whether all parts are equal.
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// What Open of a mapped HashDBM does with the updates of a killed process of this boot if some may
// be missing, because the file is a copy of the one that the process had mapped, or the file system
// was unmounted and mounted again.
enum class UnprovenUpdates {
  kRefuse,  // FailedPrecondition
  kAccept,  // checks the file and takes all updates: it was copied after the process had ended, or unmounted cleanly
  kDrop,    // returns to the last synchronized state
};

// A file whose unsynchronized stores survive the death of the process, but not a machine crash.
template <class F>
concept KernelBackedFile = File<F> && requires(const F& cf) {
  { cf.Identity() } -> std::same_as<FileIdentity>;
};

// One read of a BatchFile.
struct ReadRequest {
  std::uint64_t offset;      // of the first byte
  std::span<std::byte> out;  // receives the bytes
};
// One write of a BatchFile.
struct WriteRequest {
  std::uint64_t offset;           // of the first byte
  std::span<const std::byte> in;  // the bytes
};

// Issues many transfers at once; returns when all are done, with the first error. Transfers of one
// call must not overlap if one of them is a write.
template <class F>
concept BatchFile = File<F> && requires(F& f, std::span<const ReadRequest> reads, std::span<const WriteRequest> writes) {
  { f.ReadMulti(reads) } -> std::same_as<Status>;
  { f.WriteMulti(writes) } -> std::same_as<Status>;
};

// Transfers and bytes since Open: to the device, or to the kernel's page cache without direct I/O.
// They can be read after Close.
struct FileCounters {
  std::uint64_t reads = 0;          // transfers
  std::uint64_t read_bytes = 0;     // their bytes
  std::uint64_t writes = 0;         // transfers
  std::uint64_t written_bytes = 0;  // their bytes
};
// A file that counts its transfers.
template <class F>
concept CountingFile = File<F> && requires(const F& cf) {
  { cf.counters() } -> std::same_as<FileCounters>;
};

// A file that can bypass copies of its bytes in memory and read from the device. ReadDevice writes
// newer bytes to the device, then reads from it. If the system cannot do this, it is ReadAt.
template <class F>
concept DeviceFile = File<F> && requires(const F& cf, std::uint64_t offset, std::span<std::byte> out) {
  { cf.ReadDevice(offset, out) } -> std::same_as<Status>;
};

// Reads from the device where the file can.
template <File F>
Status ReadFromDevice(const F& file, std::uint64_t offset, std::span<std::byte> out) {
  if constexpr (DeviceFile<F>) {
    return file.ReadDevice(offset, out);
  } else {
    return file.ReadAt(offset, out);
  }
}

// What Close undoes after a failed opening: nothing; all bytes written to a file that was empty or
// had only zeros; or the creation of the file.
enum class TakeBack { kNothing, kBytes, kFile };
// A file whose opening can be undone, so that a call that opens it and then fails leaves everything
// as it was. Close undoes nothing unless SetTakeBack is called. WasCreated tells whether Open
// created the file.
template <class F>
concept UndoableFile = File<F> && requires(F& f, const F& cf, TakeBack what) {
  { cf.WasCreated() } -> std::same_as<bool>;
  f.SetTakeBack(what);
};

// What Open expects of the file.
enum class OpenMode {
  kReadOnly,   // the file must exist; other readers may have it open too
  kReadWrite,  // the file must exist; no other holder may have it open
  kCreate,     // as kReadWrite, and an absent file is created
  kTruncate,   // as kCreate, and the last step of Open drops the file's content
};

// How a file is opened, allocated and accessed.
struct FileOptions {
  OpenMode mode = OpenMode::kCreate;  // see OpenMode
  // How long to wait for another holder of the file; 0 = return Unavailable at once. A killed
  // process may still hold its file for some milliseconds, until its direct I/O in flight has
  // ended.
  std::chrono::milliseconds lock_timeout{0};
  // Mapped files: address space to reserve, in bytes; the largest size that the file can grow to
  // while open. 0 = its present size plus a share of the address space, up to 1 TiB. The share is
  // smaller if there are thousands of databases in the process, or if the system limits the address
  // space (ulimit -v); see base/address_space.h.
  std::uint64_t reserve_bytes = 0;
  // Space is allocated ahead of Size() in steps of an eighth of the size, within these bounds in
  // bytes. Close gives the rest back. A grow_min of 0 means 2 MiB once the file exceeds 128 KiB; a
  // smaller file grows only by what is needed.
  std::uint64_t grow_min = 0;
  std::uint64_t grow_max = std::uint64_t{1} << 30;
  // Mapped files: asks for 2 MiB pages for the part by which the file grows. They make random
  // access a third faster and filling a file far cheaper, but a store dirties 2 MiB instead of 4
  // KiB. Databases do not ask for them with Durability::kPower or a sync_interval, and a file that
  // is synced eight times within a second stops using them (file/map_paging.h). A hint; it has no
  // effect if grow_min is between 1 and 2 MiB.
  bool huge_pages = true;
  // Positional files: transfers bypass the kernel's page cache (O_DIRECT) and go through a separate
  // block cache. For data far larger than memory. InvalidArgument if the file system has no direct
  // I/O, or for a mapped file.
  bool direct = false;
  // Direct I/O: bytes of a block, a power of two; 0 = the device's preference, at least 4096.
  // Without direct I/O a value other than 0 is InvalidArgument, and so is `padding`. Other options
  // that do not apply to a type of file are ignored: reserve_bytes and huge_pages by positional
  // files, cache_bytes without direct I/O.
  std::uint64_t block_size = 0;
  // Direct I/O: bytes of the block cache; 0 = none, except for 1 MiB of buffers for transfers.
  std::uint64_t cache_bytes = std::uint64_t{64} << 20;
  // Direct I/O: Close pads the file with zeros to whole blocks.
  bool padding = false;
  // One holder writes the file beside others that read it, each with this option. Set by databases whose readers
  // see checkpoints (file/readers_file.h); a truncation still waits for all of them. Mapped files are then read by
  // system calls, because a map would raise SIGBUS where the writer has cut the file.
  bool beside_readers = false;
  // Positional files: each write to the device is durable when it returns (O_DSYNC). With a block
  // cache this applies once the cache writes the block. InvalidArgument for a mapped file.
  bool sync = false;
};

// A file type that can be opened by path. Open returns InvalidArgument for wrong options,
// Unavailable if another holder has the file, or the system's error.
template <class F>
concept PathFile = File<F> && requires(const std::string& path, const FileOptions& options) {
  { F::Open(path, options) } -> std::same_as<StatusOr<F>>;
};

}  // namespace hako
