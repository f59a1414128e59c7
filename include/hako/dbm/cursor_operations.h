// What an iterator of every DBM does with the record it stands on, written once.
//
// An iterator class C inherits CursorOperations<C> publicly and has, beside what MakeIterator promises (dbm/dbm.h), database(): its DBM.
// The record is changed as it is at that moment, which may differ from what key() and value() show: these are copies, and stay as they are
// until the next move.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"

namespace hako {

template <class C>
class CursorOperations {
 public:
  // Process of the current record's key; NotFound at the end.
  template <Visitor V>
  Status Process(V&& visitor) {
    if (!self().Valid()) return End();
    return self().database().Process(self().key(), std::forward<V>(visitor));
  }

  // Gives the record another value; NotFound at the end, or if it has been removed.
  Status Set(std::string_view value) {
    if (!self().Valid()) return End();
    return self().database().Replace(self().key(), value);
  }

  // Removes the record and moves to the next; NotFound at the end, or if it had been removed.
  Status Remove() {
    if (!self().Valid()) return End();
    Status status = self().database().Remove(self().key());
    self().Next();
    return status;
  }

  // Copies key and value, each if wanted, and moves to the next; NotFound at the end.
  Status Step(std::string* key, std::string* value = nullptr) HAKO_TRY {
    if (!self().Valid()) return End();
    if (key != nullptr) key->assign(self().key());
    if (value != nullptr) value->assign(self().value());
    self().Next();
    return absl::OkStatus();
  }
  HAKO_OR_NO_MEMORY

  // Where damage has stopped the iterator: calls on_damage(status) and goes on behind it, until a sound record or the end. Whether it is
  // Valid then. As in
  //   for (it.First(); it.Valid() || it.PassDamage(report); it.Next()) ...
  template <class F>
  bool PassDamage(F&& on_damage) {
    while (!self().Valid() && absl::IsDataLoss(self().status())) {
      on_damage(Status(self().status()));
      if (!self().SkipDamage()) return false;
    }
    return self().Valid();
  }

 private:
  C& self() { return static_cast<C&>(*this); }
  Status End() { return self().status().ok() ? AbsentError() : Status(self().status()); }
};

}  // namespace hako
