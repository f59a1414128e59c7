// The vocabulary of every DBM, and the concept that the six class templates model.
//
// A DBM maps keys to values; both are byte strings, as arguments StringArg (base/string_arg.h). It has three
// primitives:
//   Process       shows a record to a visitor while nothing else can change it, and carries out the
//                 Action that the visitor returns
//   Fetch         copies a value out without taking a lock
//   ProcessMulti  is Process for several records in one atomic step
// operations.h derives every update of one record (Set, Remove, Append, CompareExchange, Increment)
// from Process, and every Get that copies from Fetch.
//
// Threads: all methods are thread-safe, except Close and the destructor. An iterator belongs to one
// thread. Each operation on one key is atomic and linearizable.
//
// Visitors: the visitor of an update runs exactly once, with the record's bucket or leaf locked. It
// must be short and must not call the DBM: such a call returns FailedPrecondition where it would
// wait for a lock that the visitor holds, or stop the visitor itself. Nothing is locked while a visitor
// of GetMulti, ProcessEach or ProcessEachParallel runs: it may call the DBM.
//
// Exceptions: hako throws none. An exception of a visitor or a sink propagates from the call after
// all locks are released; that call has changed nothing. std::bad_alloc becomes ResourceExhausted.
// An exception in a thread of ProcessEachParallel propagates in the caller's thread, after all
// threads have ended. The function of on_eviction (TinyOptions) must not throw.
//
// Long values: a hash table writes a new value of more than 8 KiB after the visitor has run, with
// the bucket unlocked. Meanwhile other threads read the old value and use all other keys; an update
// of the same key waits, and so does each ProcessMulti that includes it. A ProcessMulti does the
// same for up to 16 keys; in direct I/O only if no Set of these keys came while its visitor ran. In
// direct I/O, a Set of such a key may make Sets of other keys wait too.
//
// After Close, every call that returns a Status returns FailedPrecondition, except Close itself;
// other calls return an empty result (0, an iterator that is not Valid). An iterator made before
// Close may still show records that it has already copied; its first move beyond them makes it not
// Valid, with status() FailedPrecondition. In a forked child of the process that opened the
// database every call fails in the same way, including Close: the file belongs to the parent. (A
// child made by vfork, or by a system call that bypasses the C library, must not use the database.)
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hako/base/batch.h"
#include "hako/base/function_ref.h"
#include "hako/base/integer_arg.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/base/visitor_ref.h"
#include "hako/dbm/expiry.h"
#include "hako/format/record_format.h"

namespace hako {

namespace internal {

// A string that is destroyed at the end of the expression, so that a view of it must not be kept.
template <class T>
concept TemporaryString = !std::is_lvalue_reference_v<T> && std::convertible_to<T, std::string_view> &&
                          !std::is_trivially_destructible_v<std::remove_reference_t<T>>;

// False for every V. For assertions that must fail only when the template is instantiated.
template <class V>
inline constexpr bool kNever = false;

}  // namespace internal

// The visitor's decision about the record that it was shown.
class [[nodiscard]] Action {
 public:
  // The three decisions.
  enum class Kind { kKeep, kRemove, kSet };
  // Leaves the record as it is; an absent one stays absent.
  static Action Keep() { return Action(Kind::kKeep, {}); }
  // Removes the record, if there is one.
  static Action Remove() { return Action(Kind::kRemove, {}); }
  // Stores `value`, which must stay valid until Process returns, so it cannot be a temporary string. It
  // must not overlap the view that the visitor was given. The record never expires.
  static Action Set(StringArg value) { return Action(Kind::kSet, value); }
  // As above, but the record expires at this time, in milliseconds since 1970, or never (0): see
  // dbm/expiry.h. The call that takes the Action changes nothing and returns InvalidArgument if the
  // time is beyond Expiry::kTimeMax, FailedPrecondition if it is not 0 and the database keeps no
  // times.
  static Action Set(StringArg value, IntegerArg<std::uint64_t> expire_at) {
    return Action(Kind::kSet, value, expire_at <= Expiry::kTimeMax ? std::uint64_t{expire_at} : Expiry::kInvalid);
  }
  // As above, but the record expires when the record that it replaces would have, or never.
  static Action SetKeepingExpiry(StringArg value) { return Action(Kind::kSet, value, Expiry::kKeep); }
  // Deleted: the string would be destroyed before its value is stored. Keep it in a variable that the
  // visitor refers to, and pass that.
  template <internal::TemporaryString T, class... Time>
  static Action Set(T&& value, Time... expire_at) = delete;
  template <internal::TemporaryString T>
  static Action SetKeepingExpiry(T&& value) = delete;

  // An Action is itself a visitor, which decides the same for every record: the cheapest form of an
  // update.
  Action operator()(bool) const { return *this; }

  Kind kind() const { return static_cast<Kind>(word_ & 0xff); }  // the decision
  std::string_view value() const { return value_; }              // of kSet; otherwise empty
  std::uint64_t expire_at() const { return word_ >> 8; }         // of kSet; Expiry::kKeep = the time of the record replaced
  // Whether the Action has a time, so that only a database that keeps times accepts it.
  bool HasTime() const { return expire_at() - 1 < Expiry::kKeep - 1; }

 private:
  Action(Kind kind, std::string_view value, std::uint64_t expire_at = Expiry::kNever)
      : word_(static_cast<std::uint64_t>(kind) | expire_at << 8), value_(value) {}
  std::uint64_t word_;  // kind and time in one word, so that an Action has three words
  std::string_view value_;
};

// The forms of a visitor, distinguished by their argument and result types, which must be exactly
// these: no other function is taken for one. The view is valid only during the call.
template <class V>  // sees the value (nullopt = absent) and decides
concept UpdateVisitor = requires(V& v, std::optional<std::string_view> value) {
  { v(value) } -> std::same_as<Action>;
};
template <class V>  // decides only by whether the record exists; the engine need not read the value
concept BlindVisitor = !UpdateVisitor<V> && requires(V & v, bool exists) {
  { v(exists) } -> std::same_as<Action>;
};
template <class V>  // only reads; allowed on a read-only database
concept ReadVisitor = requires(V& v, std::optional<std::string_view> value) {
  { v(value) } -> std::same_as<void>;
};
template <class V>
concept Visitor = UpdateVisitor<V> || BlindVisitor<V> || ReadVisitor<V>;

// The visitor of several records: receives the index of a key in the call's keys, and its value.
template <class V>  // decides: an Action, or nullopt to abort the whole call, including earlier decisions
concept MultiUpdateVisitor = requires(V& v, std::size_t index, std::optional<std::string_view> value) {
  { v(index, value) } -> std::convertible_to<std::optional<Action>>;
};
template <class V>  // only reads; allowed on a read-only database
concept MultiReadVisitor = requires(V& v, std::size_t index, std::optional<std::string_view> value) {
  { v(index, value) } -> std::same_as<void>;
};
template <class V>
concept MultiVisitor = MultiUpdateVisitor<V> || MultiReadVisitor<V>;

// The visitors of ProcessEach, of Get, and of ProcessFirst, which may change the record it is shown.
template <class V>
concept EachVisitor = requires(V& v, std::string_view key, std::string_view value) {
  { v(key, value) } -> std::same_as<void>;
};
template <class V>
concept ValueVisitor = requires(V& v, std::string_view value) {
  { v(value) } -> std::same_as<void>;
};
template <class V>
concept FirstVisitor = EachVisitor<V> || requires(V& v, std::string_view key, std::string_view value) {
  { v(key, value) } -> std::same_as<Action>;
};

namespace internal {

// The results of overloads that explain why a function is not a visitor.
template <class V>
Status RefuseVisitor() {
  static_assert(kNever<V>,
                "a visitor takes std::optional<std::string_view>, or bool if the value does not matter, and returns exactly hako::Action; "
                "one that only reads takes std::optional<std::string_view> and returns void");
  return {};
}
template <class V>
Status RefuseMultiVisitor() {
  static_assert(kNever<V>,
                "a visitor of several records takes (std::size_t index, std::optional<std::string_view> value) and returns "
                "std::optional<hako::Action>, where std::nullopt aborts the call, or void if it only reads");
  return {};
}
template <class V>
Status RefuseMultiReadVisitor() {
  static_assert(kNever<V>,
                "the visitor of GetMulti takes (std::size_t index, std::optional<std::string_view> value) and returns void: a result "
                "would be ignored");
  return {};
}
template <class V>
Status RefuseEachVisitor() {
  static_assert(kNever<V>,
                "a visitor of all records takes (std::string_view key, std::string_view value) and returns void: a result would be "
                "ignored. To stop early, use an iterator");
  return {};
}
template <class V>
Status RefuseValueVisitor() {
  static_assert(kNever<V>, "the visitor of Get takes std::string_view and returns void: a result would be ignored");
  return {};
}
template <class V>
Status RefuseFirstVisitor() {
  static_assert(
      kNever<V>,
      "the visitor of ProcessFirst takes (std::string_view key, std::string_view value) and returns exactly hako::Action, or void");
  return {};
}

}  // namespace internal

// A sink returns where to copy a value of `size` bytes, or nullptr to skip the copy. One Fetch may
// call it several times, because a copy that races with a writer is discarded and repeated; the
// last call counts.
template <class S>
concept Sink = requires(S& s, std::size_t size) {
  { s(size) } -> std::same_as<char*>;
};

// Visitors and sinks by reference; SinkRef and EachRef are in base/visitor_ref.h. A function that
// takes one of these is compiled once for a database. A function that takes the visitor's own type is
// compiled once for each visitor, which it inlines: that saves a call.
using UpdateRef = FunctionRef<Action(std::optional<std::string_view>)>;
using BlindUpdateRef = FunctionRef<Action(bool)>;
using ReadRef = FunctionRef<void(std::optional<std::string_view>)>;
using MultiUpdateRef = MultiVisitorRef<Action>;
using MultiReadRef = FunctionRef<void(std::size_t, std::optional<std::string_view>)>;

// Which failure acknowledged updates survive after Synchronize.
enum class SyncMode {
  kSoft,  // acknowledged updates survive the death of the process
  kHard,  // acknowledged updates survive a power cut
};

// The failure that an update survives once it has returned. SetOptions sets it for one update, the
// options of a database for every update. The head comment of the database says how.
enum class Durability {
  kNone,     // nothing: a crash leaves the state of the last synchronization
  kProcess,  // the death of the process
  kPower,    // a power cut, too; concurrent callers share one sync of the device
};

// Options of Operations::Set.
struct SetOptions {
  bool overwrite = true;                      // false: keeps an existing record and returns AlreadyExists
  std::string* old_value = nullptr;           // receives the value found, whether overwritten or not; unchanged if absent
  Durability durability = Durability::kNone;  // of this update, if more than the database's option
  // When the record expires (dbm/expiry.h): `ttl` from now, or at `expire_at`, in milliseconds since
  // 1970. A time that has passed removes the record. InvalidArgument if both are given, if `ttl` is
  // not positive, or if the time is beyond Expiry::kTimeMax; FailedPrecondition if the database
  // keeps no times.
  std::optional<std::chrono::milliseconds> ttl = std::nullopt;
  std::uint64_t expire_at = Expiry::kNever;
  bool keep_expiry = false;  // the record expires when the one that it replaces would have
};

// Options of MultiOperations::Write.
struct WriteOptions {
  Durability durability = Durability::kNone;  // of this batch, if more than the database's option
};

// The condition of CompareExchange, and of a WriteBatch.
class Expect {
 public:
  // The three conditions.
  enum class Kind { kAbsent, kAny, kValue };
  // The record is absent.
  static Expect Absent() { return Expect(Kind::kAbsent, {}); }
  // The record exists, with any value.
  static Expect Any() { return Expect(Kind::kAny, {}); }
  // The record exists with this value, which must stay valid as long as the Expect, so it cannot be a
  // temporary string.
  static Expect Value(StringArg value) { return Expect(Kind::kValue, value); }
  template <internal::TemporaryString T>
  static Expect Value(T&& value) = delete;

  Kind kind() const { return kind_; }                // the condition
  std::string_view value() const { return value_; }  // of kValue; otherwise empty

  // Whether the value found, nullopt for an absent record, meets the condition.
  bool Holds(std::optional<std::string_view> found) const {
    if (kind_ == Kind::kAbsent) return !found;
    if (!found || kind_ == Kind::kAny) return found.has_value();
    return found->size() == value_.size() && std::memcmp(found->data(), value_.data(), value_.size()) == 0;
  }

 private:
  Expect(Kind kind, std::string_view value) : kind_(kind), value_(value) {}
  Kind kind_;
  std::string_view value_;
};

class WriteBatch;  // dbm/write_batch.h

// The most threads of ProcessEachParallel. InvalidArgument for more.
inline constexpr unsigned kThreadsMax = 4096;

// Figures of a database at one moment, approximate under concurrent updates. Sizes are in bytes.
struct Stats {
  std::uint64_t num_records = 0;    // as Count
  std::uint64_t total_bytes = 0;    // the file's size or the database's memory, everything included
  std::uint64_t record_bytes = 0;   // blocks that hold records; of a TreeDBM all used bytes except index_bytes
  std::uint64_t free_bytes = 0;     // space without records: reusable now or after the next hard Synchronize
  std::uint64_t index_bytes = 0;    // HashDBM, TinyDBM: buckets; BabyDBM: lines and inner pages; TreeDBM: the page map
  std::uint64_t num_buckets = 0;    // buckets, without overflow buckets (hash), or leaf pages (tree)
  std::uint64_t num_overflow = 0;   // overflow buckets (hash)
  std::uint64_t epoch = 0;          // hard synchronizations so far (files)
  std::uint64_t own_syncs = 0;      // of these since Open, not requested by a caller (HashOptions::sync_interval, reclaim_bytes)
  std::uint64_t waiting_bytes = 0;  // part of free_bytes that the next hard Synchronize makes usable (hash)
  std::uint64_t synced_at = 0;      // wall-clock time of the last synchronization: microseconds since 1970; 0 = unknown
  // Transfers since Open, and their bytes, of files that count them (CountingFile, file/file.h).
  // Without direct I/O they end in the system's page cache.
  std::uint64_t device_reads = 0;
  std::uint64_t device_writes = 0;
  std::uint64_t device_read_bytes = 0;
  std::uint64_t device_written_bytes = 0;
  std::uint64_t second_reads = 0;  // records whose first read was too short (hash)
  // Of a database with a limit (TinyOptions, BabyOptions): the limit; Gets since Open that found
  // their record, and that did not; records evicted.
  std::uint64_t capacity_bytes = 0, capacity_records = 0;
  std::uint64_t hits = 0, misses = 0, evictions = 0;
  // Of a tree or array: the snapshots that are open, and the memory that they take.
  std::uint64_t num_snapshots = 0, snapshot_bytes = 0;
  // Of a tree or array that is open for writing, as its last checkpoint has found them (file/readers_file.h): the
  // readers in all processes; the epoch of the oldest checkpoint that one of them shows, 0 = unknown; the
  // bytes of the file that are not reused yet because they or an older checkpoint need them.
  std::uint64_t num_readers = 0, oldest_reader = 0, reader_bytes = 0;
};

// Names and texts, for people to read.
using Inspection = std::vector<std::pair<std::string, std::string>>;

// The visitor of ProcessState.
using StateRef = FunctionRef<Status(std::string_view key, std::string_view value, std::uint64_t expire_at)>;
using OnDamage = std::function<void(const Status&)>;

// The concept. Get, Set and other derived operations come from Operations<D>; operations.h
// documents them. Every call may return the errors of base/status.h.
//
//   Process   Runs the visitor on the record of `key`. Never returns NotFound: an absent record is
//             shown as nullopt.
//   Fetch     Copies the value of `key` to the sink without taking a lock. NotFound if absent.
//   ProcessEach(visitor)  Shows each record to void(std::string_view key, std::string_view value).
//                         A record that exists during the whole call is shown exactly once, any
//                         other at most once. Writers are not stopped, and nothing is locked while
//                         the visitor runs: it may use the database. ProcessEachParallel(n,
//                         visitor) uses n threads, up to kThreadsMax, which call the visitor
//                         concurrently. To stop early, use an iterator.
//   ProcessState(visitor)  Shows all records as they are at one moment, that of the call, to Status(std::string_view
//                         key, std::string_view value, std::uint64_t expire_at), whose first error ends
//                         the call. A batch is shown as a whole or not at all. Nothing is locked
//                         while the visitor runs. ProcessState(visitor, on_damage) reports damage
//                         and leaves it out. Aborted if Clear removes all records meanwhile.
//   MakeIterator  Returns a cursor: First(), Jump(key), Next(), Valid(), key(), value(), expire_at(),
//                 status().
//                 The order is internal in hash tables, by key in trees. After DataLoss,
//                 SkipDamage() continues after the damage. Operations on the current record are in
//                 cursor_operations.h.
//   Count     The number of records; exact while no update runs.
//   ProcessMulti  Runs the visitor once for each of `keys`, in their order, with all their records
//                 locked. Other threads see all of the changes or none. No order of keys deadlocks.
//                 A key may occur several times: each call then sees the earlier decisions. All
//                 decisions are made before anything changes. An Action's value must stay valid
//                 until the call returns and must not be part of a record. Aborted if the visitor
//                 aborts the call. After any error nothing has changed. Atomic across a crash too:
//                 all of its changes survive or none. A Batch (base/batch.h) can also remove ranges
//                 and set the applied index in the same step.
//   expiry        The clock of a database whose records may expire, or nullptr (dbm/expiry.h).
//   AppliedIndex  The applied index of the last batch that had one (dbm/write_batch.h), or 0.
//   Verify    Checks the whole structure. DataLoss names the damage.
//   Clear     Removes all records, atomically across a crash.
//   Synchronize  Makes acknowledged updates durable: see SyncMode.
//   GetHealth OK, or the failed write or sync after which the database refuses updates.
template <class D>
concept DBM = requires(D& d, const D& cd, std::string_view key, std::string* out, SyncMode mode, const WriteBatch& batch,
                       Action (*visit)(std::optional<std::string_view>), char* (*sink)(std::size_t),
                       void (*each)(std::string_view, std::string_view), StateRef state, std::span<const std::string_view> keys,
                       std::optional<Action> (*visit_multi)(std::size_t, std::optional<std::string_view>)) {
  { d.Process(key, visit) } -> std::same_as<Status>;
  { d.Fetch(key, sink) } -> std::same_as<Status>;
  { d.ProcessMulti(keys, visit_multi) } -> std::same_as<Status>;
  { d.ProcessEach(each) } -> std::same_as<Status>;
  { d.ProcessEachParallel(1u, each) } -> std::same_as<Status>;
  { d.ProcessState(state, OnDamage()) } -> std::same_as<Status>;
  { d.Get(key, out) } -> std::same_as<Status>;
  { d.Set(key, key) } -> std::same_as<Status>;
  { d.Remove(key) } -> std::same_as<Status>;
  { d.Write(batch, WriteOptions()) } -> std::same_as<Status>;
  { cd.AppliedIndex() } -> std::same_as<std::uint64_t>;
  { cd.expiry() } -> std::same_as<const Expiry*>;
  { d.Clear() } -> std::same_as<Status>;
  { d.Synchronize(mode) } -> std::same_as<Status>;
  { d.Verify() } -> std::same_as<Status>;
  { d.Close() } -> std::same_as<Status>;
  { cd.Count() } -> std::same_as<std::uint64_t>;
  { d.GetStats() } -> std::same_as<Stats>;
  { d.Inspect() } -> std::same_as<Inspection>;
  { cd.GetHealth() } -> std::same_as<Status>;
  d.MakeIterator();
};

}  // namespace hako
