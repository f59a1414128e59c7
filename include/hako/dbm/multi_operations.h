// The operations of every DBM on several records, or on a record that the caller does not name,
// written once over the primitives of dbm.h.
//
// A DBM class inherits MultiOperations<D> through Operations<D>.
//
// SetMulti, RemoveMulti and AppendMulti are many operations in one call, each atomic by itself. They are faster than a
// loop if the DBM overlaps their memory accesses, by its own Prefetch.
// CompareExchangeMulti, Rekey and Write are one atomic step, to other threads and across a crash:
// see ProcessMulti in dbm.h.
//
// "First" means first in the order of the DBM's iterator. The order of a hash table is internal, so
// PushLast and PopFirst make a pool there instead of a queue, and finding the first record of a
// large, nearly empty table may take long.
//
// Threads and errors: as in operations.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "hako/base/endian.h"
#include "hako/base/key_value.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/write_batch.h"

namespace hako {

// One condition and update of CompareExchangeMulti.
struct Exchange {
  StringArg key;    // of the record
  Expect expected;  // the condition
  Action desired;   // carried out if all conditions hold
};

// Options of MultiOperations::Rekey.
struct RekeyOptions {
  bool overwrite = true;         // false: keeps a record that has the new key and returns AlreadyExists
  bool copying = false;          // the record also stays under its old key
  std::string* value = nullptr;  // receives the record's value
};

// The operations: see the head of this header. Operations<D> inherits them.
template <class D>
class MultiOperations {
 public:
  // Fetches each key: calls sink(index, size), then arrived(index, found). A DBM that can overlap
  // the look-ups provides its own FetchMulti.
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Status status = self().Fetch(keys[i], [&sink, i](std::size_t size) { return sink(i, size); });
      if (!status.ok() && !absl::IsNotFound(status)) return status;
      arrived(i, status.ok());
    }
    return absl::OkStatus();
  }
  // A hint that these keys will be used. A DBM that can use the hint provides its own Prefetch.
  void Prefetch(std::span<const std::string_view>) const {}
  // Whether Prefetch reads the records from the device, many at a time, into the cache of the file.
  // If so, it is worth collecting keys for it.
  static bool PrefetchReads() { return false; }

  // Sets each record. With overwrite = false, keeps existing records and returns AlreadyExists if
  // there were any. Any other error ends the call; the records before it stay set.
  Status SetMulti(std::span<const KeyValue> records, bool overwrite = true) &;

  // Removes each existing record. NotFound if any was absent. Another error ends the call; earlier
  // records stay removed.
  Status RemoveMulti(std::span<const std::string_view> keys) &;

  // Appends to each record. An error ends the call; the records before it stay changed.
  Status AppendMulti(std::span<const KeyValue> records, StringArg delimiter = {}) &;

  // Carries out every `desired` if every record matches its `expected`; otherwise changes nothing
  // and returns Aborted. Other threads see all of the changes or none. If a key occurs several
  // times, each occurrence is compared with the result of those before it.
  Status CompareExchangeMulti(std::span<const Exchange> exchanges) &;

  // Moves the record of `old_key` to `new_key` in one step. The record keeps its expiry time.
  // NotFound if `old_key` is absent; AlreadyExists if the record of `new_key` is kept
  // (RekeyOptions::overwrite).
  Status Rekey(StringArg old_key, StringArg new_key, const RekeyOptions& options = {}) &;

  // Carries out all operations of the batch if all of its conditions hold; otherwise changes nothing
  // and returns Aborted. Other threads see all of the changes or none. After an error nothing has
  // changed, with one exception: with Durability::kPower an error of the synchronization is
  // returned after the change. InvalidArgument if the batch removes a range and the database is not
  // ordered. OutOfRange if the batch exceeds its limits, or a key is too long for the database. A
  // tree or an array loads all leaves of a removed range into memory. An array refuses more than
  // 16,384 leaves: use OrderedOperations::RemoveRange for longer ranges.
  Status Write(const WriteBatch& batch, const WriteOptions& options = {}) &;

  // Runs visitor(key, value), which returns an Action or void, on the first record. NotFound if the
  // database is empty.
  template <FirstVisitor V>
      Status ProcessFirst(V&& visitor) & HAKO_TRY {
    bool found = false;
    for (auto it = self().MakeIterator(); !found;) {
      it.First();
      if (!it.Valid()) return it.status().ok() ? AbsentError() : Status(it.status());
      const std::string_view key = it.key();
      using Result = std::invoke_result_t<V&, std::string_view, std::string_view>;
      const auto visit = [&](std::optional<std::string_view> value) -> Result {
        found = value.has_value();  // if not, another thread removed the record: try again
        if constexpr (std::is_void_v<Result>) {
          if (found) visitor(key, *value);
        } else {
          return found ? visitor(key, *value) : Action::Keep();
        }
      };
      HAKO_RETURN_IF_ERROR(self().Process(key, FunctionRef<Result(std::optional<std::string_view>)>(visit)));
      if constexpr (requires { self().ConflictOn(key); }) {  // a transaction remembers that the record was absent
        if (!found) return self().ConflictOn(key);
      }
    }
    return absl::OkStatus();
  }
  HAKO_OR_NO_MEMORY

  template <class V>
  requires(!FirstVisitor<V>) Status ProcessFirst(V&&)
  &{ return internal::RefuseFirstVisitor<V>(); }

  // Removes the first record and copies its key and value, each unless its pointer is nullptr.
  // NotFound if the database is empty.
  Status PopFirst(std::string* key = nullptr, std::string* value = nullptr) &;

  // Adds a record whose key is a time: 8 big-endian bytes in units of 10 ns since 1970 (Tkrzw's
  // format). `wtime` is in seconds; a negative one means now. If the key exists, the time is
  // advanced by one unit until it is free. If `key` is given, *key receives the key.
  // InvalidArgument if `wtime` is not below 1e11.
  Status PushLast(StringArg value, double wtime = -1, std::string* key = nullptr) &;

 private:
  static constexpr std::size_t kGroup = 32;

  bool IsSameKey(std::string_view a, std::string_view b);
  D& self() { return static_cast<D&>(*this); }

  static Status NoteIf(absl::StatusCode expected, Status status, bool* noted) {
    if (status.code() != expected) return status;
    *noted = true;
    return absl::OkStatus();
  }

  // Runs operation(i) for i in [0, n), prefetching each group of keys first.
  template <class KeyOf, class F>
  Status ForEachKey(std::size_t n, KeyOf key_of, F operation) {
    for (std::size_t i = 0; i < n; ++i) {
      if (i % kGroup == 0) {
        std::string_view keys[kGroup];
        const std::size_t count = std::min(n - i, kGroup);
        for (std::size_t k = 0; k < count; ++k) keys[k] = key_of(i + k);
        self().Prefetch(std::span<const std::string_view>(keys, count));
      }
      HAKO_RETURN_IF_ERROR(operation(i));
    }
    return absl::OkStatus();
  }
};

}  // namespace hako

#include "hako/dbm/multi_operations-inl.h"
