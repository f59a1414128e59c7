// What every DBM of hako is: the vocabulary, and the concept that the four class templates model.
//
// A DBM maps keys to values, both byte strings. One primitive changes a record: Process(key, visitor) shows the visitor the record while
// nobody else can change it, and carries out the Action it returns. Everything else (Set, Remove, Append, CompareExchange, Increment) is
// derived from it once, in operations.h. A second primitive, Fetch, copies a value out without taking a lock; every Get stands on it. A
// third, ProcessMulti, is Process of several records in one step.
//
// Threads: all methods may be called from any thread at the same time, except Close and the destructor. An iterator belongs to one thread.
// Each operation on one key is atomic and linearizable. A visitor runs with its bucket locked: it must be short and must not call the DBM.
// A call from it that would wait for the visitor's own lock, or stop it, is FailedPrecondition.
// The visitor of one update runs once. In a hash table a new value of more than 8 KiB is written after that with the bucket unlocked:
// meanwhile other threads read the old value and use all other keys; an update of the same key waits, and so does each ProcessMulti with
// it. (A ProcessMulti does so for up to 16 keys.) In direct I/O a Set of the key may make Sets of others wait too.
//
// After Close every call is FailedPrecondition, and those that return no Status return nothing (0, an iterator that is not Valid). A forked
// child must not use a database that it inherited: its threads and locks belong to the parent. There, Close and every call that is not
// about single records are FailedPrecondition, and the destructor leaves the file as it is.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/format/record_format.h"

namespace hako {

// What is to become of the record that a visitor was shown.
class [[nodiscard]] Action {
 public:
  enum class Kind { kKeep, kRemove, kSet };
  static Action Keep() { return Action(Kind::kKeep, {}); }
  static Action Remove() { return Action(Kind::kRemove, {}); }
  // Store `value`, which must stay valid until Process returns and must not be the view that the visitor was given, nor overlap it.
  static Action Set(std::string_view value) { return Action(Kind::kSet, value); }

  // An Action is a visitor too, one that decides on itself whatever is there: the cheapest form of an update.
  Action operator()(bool) const { return *this; }

  Kind kind() const { return kind_; }
  std::string_view value() const { return value_; }

 private:
  Action(Kind kind, std::string_view value) : kind_(kind), value_(value) {}
  Kind kind_;
  std::string_view value_;
};

// The forms of a visitor, told apart by what they accept and return. The view is valid only inside the call.
template <class V>  // sees the value (nullopt = absent) and decides
concept UpdateVisitor = requires(V& v, std::optional<std::string_view> value) {
  { v(value) } -> std::same_as<Action>;
};
template <class V>  // decides without the value, only by whether there is a record; spares the engine reading it
concept BlindVisitor = !UpdateVisitor<V> && requires(V & v, bool exists) {
  { v(exists) } -> std::same_as<Action>;
};
template <class V>  // only looks; allowed on a read-only database
concept ReadVisitor = requires(V& v, std::optional<std::string_view> value) {
  { v(value) } -> std::same_as<void>;
};
template <class V>
concept Visitor = UpdateVisitor<V> || BlindVisitor<V> || ReadVisitor<V>;

// The visitor of several records: sees the number of a key among those of the call, and its value.
template <class V>  // decides: an Action, or nullopt to call off the whole, also what was decided before
concept MultiUpdateVisitor = requires(V& v, std::size_t index, std::optional<std::string_view> value) {
  { v(index, value) } -> std::convertible_to<std::optional<Action>>;
};
template <class V>  // only looks; allowed on a read-only database
concept MultiReadVisitor = requires(V& v, std::size_t index, std::optional<std::string_view> value) {
  { v(index, value) } -> std::same_as<void>;
};
template <class V>
concept MultiVisitor = MultiUpdateVisitor<V> || MultiReadVisitor<V>;

// A sink says where a value of `size` bytes is to be copied; nullptr = do not copy. It may be called several times for one Fetch (a copy
// that raced with a writer is thrown away and made again); the last call holds.
template <class S>
concept Sink = requires(S& s, std::size_t size) {
  { s(size) } -> std::same_as<char*>;
};

enum class SyncMode {
  kSoft,  // what was acknowledged survives the death of the process
  kHard,  // what was acknowledged survives a power cut
};

// What an update survives when it returns: a single one (SetOptions), or every one of a database that is opened so (HashOptions).
enum class Durability {
  kProcess,  // what the database survives anyway: see its head comment
  kPower,    // as if a hard Synchronize followed; threads that wait for one at the same time share it
};

struct SetOptions {
  bool overwrite = true;             // false: a record that exists is kept, and the result is AlreadyExists
  std::string* old_value = nullptr;  // receives the value found, whether or not it was overwritten; untouched if there was none
  Durability durability = Durability::kProcess;
};

// What CompareExchange expects to find.
class Expect {
 public:
  enum class Kind { kAbsent, kAny, kValue };
  static Expect Absent() { return Expect(Kind::kAbsent, {}); }
  static Expect Any() { return Expect(Kind::kAny, {}); }  // a record, whatever its value
  static Expect Value(std::string_view value) { return Expect(Kind::kValue, value); }

  bool Holds(std::optional<std::string_view> found) const {
    if (kind_ == Kind::kAbsent) return !found;
    return found && (kind_ == Kind::kAny || *found == value_);
  }

 private:
  Expect(Kind kind, std::string_view value) : kind_(kind), value_(value) {}
  Kind kind_;
  std::string_view value_;
};

// Figures of a database at one moment; sizes in bytes. Under concurrent updates they are approximate.
struct Stats {
  std::uint64_t num_records = 0;
  std::uint64_t total_bytes = 0;    // the file's size, or the memory the database takes: everything included
  std::uint64_t record_bytes = 0;   // blocks that hold a record
  std::uint64_t free_bytes = 0;     // blocks that hold none and can be used again, now or after the next hard Synchronize
  std::uint64_t index_bytes = 0;    // bucket lines or pages
  std::uint64_t num_buckets = 0;    // home buckets (hash) or leaf pages (tree)
  std::uint64_t num_overflow = 0;   // overflow lines (hash)
  std::uint64_t epoch = 0;          // hard synchronizations so far (files)
  std::uint64_t own_syncs = 0;      // of these, those since Open that nobody asked for (HashOptions::sync_interval, reclaim_bytes)
  std::uint64_t waiting_bytes = 0;  // of free_bytes, those that the next hard Synchronize makes usable (hash)
  std::uint64_t synced_at = 0;      // when the last of them was, by the clock on the wall: microseconds since 1970; 0 = unknown
  // Of files with direct I/O, since they were opened: transfers to and from the device, and their bytes.
  std::uint64_t device_reads = 0, device_writes = 0, device_read_bytes = 0, device_written_bytes = 0;
  std::uint64_t second_reads = 0;  // records or pages whose first read was too short
};

using Inspection = std::vector<std::pair<std::string, std::string>>;

// Every DBM. Get, Set and the rest come from Operations<D>; see operations.h for their meaning.
//
//   Process   runs the visitor on the record of `key`; NotFound never, an absent record is nullopt
//   Fetch     copies the value of `key` to the sink without a lock; NotFound if absent
//   ProcessEach(visitor)  shows each record to void(std::string_view key, std::string_view value); records present throughout exactly once,
//             others at most once; writers are not stopped. ProcessEachParallel(n, visitor) does so in n threads, which call the visitor at
//             the same time
//   MakeIterator  a cursor: First(), Jump(key), Next(), Valid(), key(), value(), status(); an order of the index's own for hash tables;
//             what it does with its record is in cursor_operations.h. Where damage stops it, SkipDamage() goes on behind
//   Count     exact when no update runs
//   ProcessMulti  runs the visitor once for each of `keys`, in their order, while the records of all of them are locked: other threads see
//             all of it or nothing. No order of keys deadlocks. A key may come several times; each call then sees what those before
//             decided. All are decided on before anything changes. An Action's value must stay valid until the call returns, and may be a
//             part of no record. Aborted if the visitor called it off; after any error nothing has changed. Not atomic to a crash: of a
//             process killed meanwhile some changes may have been made and others not.
//   Verify    proves the whole structure; DataLoss says what is wrong
//   Clear     drops all records; atomic to a crash
//   Synchronize  see SyncMode
//   GetHealth OK, or the failed write or sync since which the database refuses updates
template <class D>
concept DBM = requires(D& d, const D& cd, std::string_view key, std::string* out, SyncMode mode,
                       Action (*visit)(std::optional<std::string_view>), char* (*sink)(std::size_t),
                       void (*each)(std::string_view, std::string_view), std::span<const std::string_view> keys,
                       std::optional<Action> (*visit_multi)(std::size_t, std::optional<std::string_view>)) {
  { d.Process(key, visit) } -> std::same_as<Status>;
  { d.Fetch(key, sink) } -> std::same_as<Status>;
  { d.ProcessMulti(keys, visit_multi) } -> std::same_as<Status>;
  { d.ProcessEach(each) } -> std::same_as<Status>;
  { d.ProcessEachParallel(1u, each) } -> std::same_as<Status>;
  { d.Get(key, out) } -> std::same_as<Status>;
  { d.Set(key, key) } -> std::same_as<Status>;
  { d.Remove(key) } -> std::same_as<Status>;
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
