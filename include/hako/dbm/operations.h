// The operations of every DBM on one record, written once over its primitives Process and Fetch.
//
// A DBM class D inherits Operations<D> publicly (CRTP, so that visitors inline) and provides
// Process and Fetch. Operations on several records are in multi_operations.h.
//
// Threads, linearizability and visitors: see dbm/dbm.h. Sizes are in bytes.
//
// Errors: each function names its specific outcomes, which change nothing. NotFound, AlreadyExists
// and Aborted carry no message and cost no allocation. Any function may also return OutOfRange (a
// key or value beyond its limit), DataLoss or another error of base/status.h. An update may also
// return ResourceExhausted or FailedPrecondition.
//
// Crashes: an update of one record survives a crash as a whole or not at all. The head comment of
// the database says from when on it survives; SetOptions::durability can require more.
//
// Updates are members of named objects alone: one of a temporary hako::Transaction would be lost, so it does not compile.
//
// Allocations: on success only Append, GetOr, the StatusOr<std::string> form of Get, and functions
// that must grow a std::string of the caller allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hako/base/endian.h"
#include "hako/base/inline.h"
#include "hako/base/integer_arg.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/multi_operations.h"
#include "hako/dbm/read_operations.h"

namespace hako {

// Inherits ReadOperations (dbm/read_operations.h)
//   Get, GetOr, GetSize, Contains                 read one record
//   GetMulti                                      read several
// and MultiOperations (dbm/multi_operations.h)
//   SetMulti, RemoveMulti, AppendMulti            many operations in one call
//   CompareExchangeMulti, Rekey, Write            several records in one atomic step
//   ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//   Export                                        copy all records to another database
template <class D>
class Operations : public ReadOperations<D>, public MultiOperations<D> {
 public:
  // Stores the record, replacing an existing value.
  Status Set(StringArg key, StringArg value) &;

  // Set with options. AlreadyExists if the record is kept (SetOptions::overwrite). With
  // Durability::kPower an error of the synchronization is returned after the record was stored.
  Status Set(StringArg key, StringArg value, const SetOptions& options) &;

  // Makes the record never expire. For errors see SetExpiry (dbm/engine_operations.h).
  Status Persist(StringArg key) &;

  // Overwrites an existing record. NotFound if absent.
  Status Replace(StringArg key, StringArg value) &;

  // Removes the record. NotFound if absent.
  Status Remove(StringArg key) &;

  // Remove that copies the removed value into *old_value, if given. NotFound leaves *old_value unchanged.
  Status Remove(StringArg key, std::string* old_value) &;

  // Appends `value`, preceded by `delimiter` if the record exists; creates the record if absent. A
  // file never changes a record in place, so there the whole value is written again. The record
  // expires when it would have.
  Status Append(StringArg key, StringArg value, StringArg delimiter = {}) &;

  // Carries out `desired` (Keep, Remove or Set) if the record matches `expected`; otherwise changes
  // nothing and returns Aborted. *actual, if given, receives the value found, or becomes empty;
  // *found receives whether the record exists.
  Status CompareExchange(StringArg key, Expect expected, Action desired, std::string* actual = nullptr, bool* found = nullptr) &;

  // Adds `delta` to the record, an int64 in 8 big-endian bytes, or creates it as initial + delta.
  // Returns the new number. OutOfRange if the sum overflows, InvalidArgument if the record is not 8
  // bytes long. The record expires when it would have.
  StatusOr<std::int64_t> Increment(StringArg key, IntegerArg<std::int64_t> delta = 1, IntegerArg<std::int64_t> initial = 0) &;

 private:
  // When a record that is set with these options expires.
  StatusOr<std::uint64_t> TimeOf(const SetOptions& options);
  // Process for visitors that are short and often called, and that set no time.
  template <class Ref, class V>
  HAKO_INLINE Status Update(std::string_view key, const V& visitor) {
    if constexpr (requires { requires D::kInlinesUpdates; })
      return self().template Process<false>(key, visitor);
    else
      return self().Process(key, Ref(visitor));
  }

  D& self() { return static_cast<D&>(*this); }
};

}  // namespace hako

#include "hako/dbm/operations-inl.h"
