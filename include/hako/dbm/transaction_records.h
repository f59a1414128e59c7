// The reads and updates of a transaction (dbm/transaction.h), whatever its database: compiled once.
//
// It is validated by content: Commit locks all that was read, and compares it with the database. So records need no
// versions, and a database without transactions pays nothing. A record that was changed and changed back counts as
// unchanged, which is right: the transaction then takes effect at the moment of its commit. Single records are compared
// byte by byte; those of a range that a cursor has passed by a 128-bit sum of their hashes, of a seed that the process
// draws at random.
//
// Thread-compatible.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/batch.h"
#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"

namespace hako::internal {

// Bytes that stay where they are until Clear, which keeps the first block of memory unless it is large.
class ByteArena {
 public:
  // Returns room for this many bytes. May throw std::bad_alloc.
  char* Take(std::size_t size);
  // Copies the bytes. May throw std::bad_alloc.
  std::string_view Copy(std::string_view bytes);
  void Clear();
  // The bytes taken since the last Clear.
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kFirst = 4096, kMost = 1 << 20;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  std::size_t left_ = 0, size_ = 0, block_size_ = kFirst, first_size_ = 0;
};

// A sum of the hashes of records, which does not depend on their order.
struct RecordSum {
  std::uint64_t low = 0, high = 0, count = 0;

  static RecordSum Of(std::string_view key, std::string_view value);
  void Add(const RecordSum& record) {
    low += record.low;
    high += record.high;
    count += record.count;
  }
  bool operator==(const RecordSum&) const = default;
};

class TransactionRecords;

// Changes that a transaction makes beside its records: see table/table_transaction.h.
class TransactionPart {
 public:
  virtual ~TransactionPart() = default;
  // Before Commit compares and perhaps writes. Must not wait for other threads, because other parts have begun: returns
  // BusyError instead, and is called again once all have ended. After another error nothing is written.
  virtual Status BeginCommit(const TransactionRecords& records) = 0;
  // After each BeginCommit. `has_written`: whether all updates were made.
  virtual void EndCommit(bool has_written) noexcept = 0;
  // The transaction has ended.
  virtual void Forget() noexcept = 0;

  static Status BusyError() { return absl::UnavailableError(""); }
};

// The records and ranges of a transaction. A function that throws std::bad_alloc has changed nothing.
class TransactionRecords {
 public:
  // Negative if the first key is below the second; nullptr if keys have no order, and are equal if their bytes are.
  using Order = int (*)(std::string_view, std::string_view);
  // The database's ProcessMulti.
  using Process = FunctionRef<Status(const Batch<Action>& batch, std::uint64_t* expiry_shown)>;

  // How much was read of a record: nothing, whether it exists, or also its value.
  enum class Seen : std::uint8_t { kNothing, kAbsent, kExists, kValue };
  // What Commit makes of a record.
  struct Write {
    Action::Kind kind = Action::Kind::kKeep;
    bool renews = false;   // of kSet: the transaction has removed the record before
    std::string_view key;  // of kSet: the spelling of the key that a new record gets
    std::string_view value;
    std::uint64_t expire_at = Expiry::kNever;  // as of an Action
  };
  struct Record {
    std::string_view key;  // as it was spelled first
    Seen seen = Seen::kNothing;
    std::string_view seen_value;
    std::optional<std::uint64_t> seen_time;  // when it expires, if that was read
    Write write;
  };
  // The records that a cursor has passed in one direction: from where it began to the last one that it has shown, or to
  // its end.
  struct Run {
    bool is_upwards = true;
    bool has_end = false;              // whether the end was reached
    bool is_inclusive = true;          // whether a record at `from` is passed, too
    std::optional<std::string> from;   // nullopt: from the end of the keys
    std::optional<std::string> bound;  // the end that was reached; nullopt: that of all keys
    std::optional<std::string> last;   // the last key that was shown; nullopt: none
    RecordSum before, at;              // of the database's records before `last`, and of the one there, if it has one
  };

  explicit TransactionRecords(Order key_order) : order_(key_order), index_(Less{this}), written_(Less{this}) {}
  TransactionRecords(const TransactionRecords&) = delete;
  ~TransactionRecords() { ForgetParts(); }

  // Ends the transaction: forgets everything, and keeps memory for the next one.
  void Clear();
  // The number of transactions that have ended. What belongs to an ended one has a lower number.
  std::uint64_t number() const { return number_; }
  Order order() const { return order_; }
  int Compare(std::string_view a, std::string_view b) const { return order_ != nullptr ? order_(a, b) : a.compare(b); }

  // Returns the index of the key's record, which it adds if the transaction has not used it before. OutOfRange if there are
  // too many records or bytes (WriteBatch::kSizeMax, kBytesMax).
  StatusOr<std::uint32_t> FindOrAdd(std::string_view key);
  // Valid until FindOrAdd; the views, until Clear.
  Record& at(std::uint32_t i) { return records_[i]; }
  // Returns room for a value, until Clear. OutOfRange as above.
  StatusOr<char*> RoomFor(std::size_t size);
  // Stores a decision about a record, whose key the caller spells so. `is_absent`: the record that the transaction has set
  // before has expired. OutOfRange as above.
  Status Put(std::uint32_t record, std::string_view key, const Action& action, bool is_absent = false);

  // The record next to this key that is written; nullptr if there is none. `from` nullopt: next to the end of the keys.
  const Record* NextWritten(std::optional<std::string_view> from, bool is_inclusive, bool is_upwards);

  // Adds a run and returns its index. OutOfRange as above.
  StatusOr<std::size_t> AddRun(bool is_upwards, std::optional<std::string_view> from, bool is_inclusive);
  Run& run(std::size_t i) { return runs_[i]; }
  // The run has come to this key, or to its end, which is this bound. OutOfRange as above.
  Status SetLast(std::size_t run, std::string_view key);
  Status SetEnd(std::size_t run, const std::optional<std::string>& bound);

  // The moment after the last Put, for UndoTo.
  std::uint64_t moment() const { return undos_.empty() ? 0 : undos_.back().serial; }
  // Whether that moment has not been taken back.
  bool HasMoment(std::uint64_t moment) const;
  // Takes back all Puts since. Returns false if that moment was taken back itself.
  bool UndoTo(std::uint64_t moment);

  // Compares all that was read with the database and, if `writes`, writes. Aborted if something has changed; *conflict is
  // then its key.
  Status Commit(bool writes, Process process, std::string* conflict) const;
  // Aborted, with the key that has changed.
  static Status ConflictError(std::string_view key);
  // Aborted, of a part whose table is no longer the same.
  static Status SchemaConflictError();
  bool HasWrites() const { return num_writes_ != 0; }

  // Adds a part, which stays until the end of the transaction, and as long as others use it.
  void Join(std::shared_ptr<TransactionPart> part) { parts_.push_back(std::move(part)); }

 private:
  struct Undo {
    std::uint64_t serial;
    std::uint32_t record;
    Write write;
  };
  struct Less {
    using is_transparent = void;
    const TransactionRecords* of;
    bool operator()(std::uint32_t a, std::uint32_t b) const { return of->Compare(of->records_[a].key, of->records_[b].key) < 0; }
    bool operator()(std::uint32_t a, std::string_view b) const { return of->Compare(of->records_[a].key, b) < 0; }
    bool operator()(std::string_view a, std::uint32_t b) const { return of->Compare(a, of->records_[b].key) < 0; }
  };
  class Validation;
  static constexpr std::size_t kFew = 8;  // up to this many records are found without the index

  void ForgetParts();
  Status CheckRoom(std::size_t bytes) const;
  Status CheckCount() const;  // whether there is room for one more record or range
  std::optional<std::uint32_t> Find(std::string_view key);
  void SetWrite(std::uint32_t record, const Write& write);

  const Order order_;
  ByteArena arena_;
  std::size_t run_bytes_ = 0;              // of the keys of runs_
  std::vector<Record> records_;            // in the order of their first use
  std::set<std::uint32_t, Less> index_;    // the first num_indexed_ of them
  std::set<std::uint32_t, Less> written_;  // those that are written, once NextWritten was called
  std::uint32_t num_indexed_ = 0, num_writes_ = 0;
  bool knows_written_ = false;
  std::vector<Undo> undos_;
  std::vector<Run> runs_;
  std::vector<std::shared_ptr<TransactionPart>> parts_;
  std::uint64_t number_ = 0, serial_ = 0;
};

// The order in which the transactions of a database that were aborted try again.
//
// Each waits for a random time, which grows with the number of its tries. One that was aborted kPatience times takes the
// turn of its database: until it ends, the others wait before their next try, for at most kWaitMax. So it succeeds, unless
// plain updates keep changing its records.
class Turn {
 public:
  explicit Turn(const void* database);
  Turn(const Turn&) = delete;
  ~Turn();
  // Call before each try; `num_aborted` tries have been aborted.
  void Await(unsigned num_aborted);

 private:
  static constexpr unsigned kPatience = 8;
  static constexpr std::chrono::milliseconds kWaitMax{100};
  // Waits until no other transaction has the turn, at most kWaitMax.
  void AwaitOthers() const;

  std::atomic<const Turn*>& holder_;
};

}  // namespace hako::internal
