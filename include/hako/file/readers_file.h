// Processes that read a tree or an array while another one writes it.
//
// A reader shows one checkpoint: that of the newer superblock when it was opened. The writer reuses no
// space of the file that this checkpoint needs until the reader is closed or dead. So the reader needs
// nothing from the writer but the file, and both run at their own speed.
//
// Locks. A writer has the first part of the database file locked (file/file_lock.h), a reader the second
// part, so neither waits for the other. Those that replace or truncate the file need both parts.
// A reader also has a mark: an OFD lock on one byte of the database file after kReaderMarks. Which byte depends on the
// file of the readers, so it is the same for all that have their slots there. A writer sees the marks by whichever
// name a reader has opened the database.
//
// The file. Readers note which checkpoint they read in a file beside the database, DATABASE-readers. The
// first reader creates it, and the last one, or the writer's Close, removes it. It has a slot of 64 bytes for each reader:
//   epoch       the sequence of the superblock; the reader needs this checkpoint and may need later ones.
//               0 until the reader has read a superblock: it may need any
//   generation  random, another one for each reader
//   since       when the reader has last known its checkpoint to be the newest, in milliseconds of SteadyMilliseconds
//               (base/wall_clock.h), or of the clock that the options give
//   check       of the three, so that a slot that is half written counts as epoch 0
//   cut_off     the writer sets it to the generation of a reader that it no longer waits for
// The first 64 bytes begin with a number of 32 bits, in the byte order of the machine, that the writer increments after each
// checkpoint that finds a reader. Readers that wait for a checkpoint sleep on it (a futex). Figures of that checkpoint
// follow, for people.
// A reader holds a lock (an OFD lock) on its slot as long as it lives, whatever is written there. A killed
// process loses its locks, so it pins nothing. The first bytes of the file are locked by every reader, and
// alone by one that removes the file.
//
// Order. A reader has a slot with epoch 0 before it reads a superblock. A writer first writes a superblock,
// then looks at the slots, then reuses the space that neither this checkpoint nor a slot needs. So either the
// writer finds the slot, or the reader finds the writer's superblock. This also holds if the process of a
// writer dies at any point, because space is reused only after another look, by this writer or the next one.
// A writer that opens the file while a reader needs an older checkpoint cannot know the space of that
// checkpoint. It then reuses no free space that it finds, and does not cut the file, until the reader has gone.
//
// Other names. A database that is opened by two hard links, or by a mount of the file alone, has a file of readers beside each
// name. If a writer sees a mark of another file of readers than its own, or if it cannot read that
// file, there may be a reader of any checkpoint. Then it reuses nothing, and cuts nobody off, as long as that is so. The same
// holds if the database was renamed, or the file of the readers was removed.
//
// Cut off. If readers keep more space than the writer allows (TreeOptions::reader_bytes), it cuts off those of
// the oldest checkpoints, and those that are older than it allows (reader_age), and reuses the space. Each page has a checksum that the
// page above it knows, so a reader never shows the bytes that the writer has put in place of a page. Its read fails, and
// ReaderSlot::Explain then tells why.
//
// Readers on another machine are not supported, like writers on several machines.
//
// A ReaderSlot is thread-safe, except its destructor. A ReadersFile is not.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hako/base/status.h"
#include "hako/sync/fork_call.h"

namespace hako {

// The suffix of the file: its path is the path of the database followed by this.
inline constexpr char kReadersEnding[] = "-readers";

// Milliseconds of a clock that all processes on the machine share. nullptr stands for SteadyMilliseconds.
using ReadersClock = std::uint64_t (*)();

// The limits of a writer for readers of older checkpoints than the newest.
struct ReaderLimits {
  std::uint64_t bytes = 0;  // of the file that they keep; 0 = no limit
  std::uint64_t age = 0;    // milliseconds; 0 = no limit
  ReadersClock clock = nullptr;
};

// The slot of a reader.
class ReaderSlot {
 public:
  // Takes a slot beside the database at this path, which must exist, with epoch 0, and sets its mark. An error if the
  // file of the readers can be neither opened nor created there; Unavailable if it stays locked for a second.
  static StatusOr<std::unique_ptr<ReaderSlot>> Take(const std::string& database, ReadersClock clock = nullptr);
  ReaderSlot(const ReaderSlot&) = delete;
  ReaderSlot& operator=(const ReaderSlot&) = delete;
  // Gives the slot back. In a forked child does nothing: the slot belongs to the parent.
  ~ReaderSlot();

  // From now on only this checkpoint and later ones are needed. This one is the newest now.
  Status SetEpoch(std::uint64_t epoch);
  // Whether the writer no longer waits for this reader.
  bool IsCutOff() const;
  // Replaces the error of a read by Aborted if the reader is cut off.
  Status Explain(Status status) const;
  // Whether the path of the database now names another file, or none.
  bool IsReplaced() const;
  // Reads bytes of the database file, as its writer has written them last.
  Status ReadDatabase(std::uint64_t offset, std::span<std::byte> out) const;
  // The number that the writer increments after a checkpoint; 0 if it cannot be read.
  std::uint32_t NumTold() const;
  // Returns once NumTold() is not `known`, or after a tenth of a second, because a writer that has opened the
  // database by another name does not tell.
  void AwaitNews(std::uint32_t known, std::chrono::steady_clock::time_point deadline) const;
  // Whether a writer has the database open and has not written a superblock yet.
  bool IsBeingCreated() const;

 private:
  ReaderSlot(std::string path, int fd, ReadersClock clock);
  StatusOr<bool> Claim();                            // false if the file was removed meanwhile
  StatusOr<bool> Mark(const std::string& database);  // false if the database was replaced meanwhile
  Status Store(std::uint64_t epoch) const;
  void CloseInChild();

  const std::string path_;
  int fd_;
  int database_fd_ = -1;      // holds the mark
  std::uint64_t offset_ = 0;  // of the slot; 0 = none
  const std::uint64_t generation_;
  const ReadersClock clock_;
  // A child that kept the descriptor would keep the locks when the parent dies.
  const sync::ForkCall on_fork_{this, [](void* self) { static_cast<ReaderSlot*>(self)->CloseInChild(); }};
};

// The readers of a database, as its writer sees them.
class ReadersFile {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Pins {
    std::uint64_t num_readers = 0;  // those by other names count as one
    std::uint64_t oldest = kNone;   // the smallest epoch that a reader needs; kNone if there is no reader
    std::uint64_t since = kNone;    // the earliest time in a slot of an older checkpoint than the newest; kNone if there is none
    Status status;                  // why the file of the readers cannot be used, though there are readers
  };

  // Beside the database at this path.
  explicit ReadersFile(const std::string& database);
  ReadersFile(const ReadersFile&) = delete;
  ReadersFile& operator=(const ReadersFile&) = delete;
  ~ReadersFile();

  // The readers that live and are not cut off: one call of the system if there is none. If not all of them can be
  // known, `oldest` is 0: there may be readers of any checkpoint.
  // `newest` is the epoch of the newest checkpoint.
  Pins Look(std::uint64_t newest = kNone);
  // Cuts off the readers whose epochs are below `epoch`, and those below `newest` whose slots are of a time before
  // `since`. They stay if the file cannot be written.
  void CutOffBelow(std::uint64_t epoch, std::uint64_t newest = 0, std::uint64_t since = 0);
  // What a writer tells with a checkpoint.
  struct Figures {
    std::uint64_t epoch = 0;         // of the checkpoint; 0 = no writer has told any
    std::uint64_t free_bytes = 0;    // of the file, as in Stats (dbm/dbm.h)
    std::uint64_t reader_bytes = 0;  // as in Stats
    std::uint64_t lsn = 0;           // the position of the checkpoint in the log; 0 = there is none
  };
  // Wakes the readers that wait for a checkpoint. Call after Look has found readers.
  void Tell(const Figures& figures);
  // The figures that were told last. Call after Look.
  Figures GetFigures() const;

 private:
  void CloseFile();
  // Opens the file if there is one. An error if it cannot be written; if it cannot be read either, fd_ is -1.
  Status Open();
  template <class F>
  bool ForEachReader(F&& visit);  // returns false if the file cannot be read

  const std::string database_, path_;
  int database_fd_;
  int fd_ = -1;
  void* map_ = nullptr;  // of the file, for Tell; it is not read
  Status opened_;        // of the file that Open has found last
};

}  // namespace hako
