// The operations of every iterator on its current record, written once.
//
// An iterator class C inherits CursorOperations<C> publicly. C provides the functions that
// dbm/dbm.h requires of a cursor, and database(), which returns its DBM. An operation applies to
// the record as it is at that moment, which may differ from key() and value(): these are copies
// that stay unchanged until the next move. Before its first move an iterator is not Valid, and
// status() is FailedPrecondition. At the end, and before the first move, Next and Previous do
// nothing, and each operation returns status() if that is an error, else NotFound. Other errors and
// the behaviour in a crash are those of the DBM's operation.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"

namespace hako {

namespace internal {

// Returns the status of an iterator before its first move, at which a loop would visit nothing.
inline const Status& UnmovedError() {
  static const auto* const error =
      new Status(absl::FailedPreconditionError("the iterator is at no record yet: call First, Last or Jump before Valid and Next"));
  return *error;
}

}  // namespace internal

// Those that read, which the iterator of a snapshot (dbm/snapshot_cursor.h) has, too.
template <class C>
class CursorReads {
 public:
  // Copies the key and the value, each unless its pointer is nullptr, and moves to the next record.
  Status Step(std::string* key, std::string* value = nullptr) HAKO_TRY {
    if (!self().Valid()) return End();
    if (key != nullptr) key->assign(self().key());
    if (value != nullptr) value->assign(self().value());
    self().Next();
    return absl::OkStatus();
  }
  HAKO_OR_NO_MEMORY

  // If damage stopped the iterator, calls on_damage(status) and skips the damage. Repeats this
  // until it reaches a sound record or the end. Returns Valid():
  //   for (it.First(); it.Valid() || it.PassDamage(report); it.Next()) ...
  template <class F>
  bool PassDamage(F&& on_damage) {
    static_assert(std::is_void_v<std::invoke_result_t<F&, Status>>, "the result of on_damage would be ignored: it returns void");
    while (!self().Valid() && absl::IsDataLoss(self().status())) {
      on_damage(Status(self().status()));
      if (!self().SkipDamage()) return false;
    }
    return self().Valid();
  }

 protected:
  // Returns status() if that is an error, else NotFound.
  Status End() { return self().status().ok() ? AbsentError() : Status(self().status()); }

 private:
  C& self() { return static_cast<C&>(*this); }
};

// The operations: see the head of this header.
template <class C>
class CursorOperations : public CursorReads<C> {
 public:
  // Runs Process for the current record's key.
  template <Visitor V>
  Status Process(V&& visitor) {
    if (!self().Valid()) return this->End();
    return self().database().Process(self().key(), std::forward<V>(visitor));
  }

  template <class V>
  requires(!Visitor<V>) Status Process(V&&) { return internal::RefuseVisitor<V>(); }

  // Replaces the record's value. NotFound if the record was removed.
  Status Set(StringArg value) {
    if (!self().Valid()) return this->End();
    return self().database().Replace(self().key(), value);
  }

  // Removes the record and moves to the next one. NotFound if the record was already removed.
  Status Remove() {
    if (!self().Valid()) return this->End();
    Status status = self().database().Remove(self().key());
    self().Next();
    return status;
  }

 private:
  C& self() { return static_cast<C&>(*this); }
};

}  // namespace hako
