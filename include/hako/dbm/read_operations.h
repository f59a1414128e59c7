// The operations of every DBM, and of a snapshot of one (dbm/snapshot.h), that read records by key, written once over
// their primitives Process and Fetch.
//
// A class D inherits ReadOperations<D> publicly and provides Process, Fetch, FetchMulti and ProcessState. Threads, linearizability
// and visitors: see dbm/dbm.h. Errors and allocations: see dbm/operations.h.
//
// GetMulti is faster than a loop if D overlaps the memory accesses, by its own FetchMulti. In a database whose records
// expire, and in a snapshot, it is a loop.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"

namespace hako {

namespace internal {

// Sinks are plain structs rather than lambdas with references to local variables. Fetch keeps a
// copy of a struct in registers. A variable whose address may be known elsewhere is stored and
// loaded around each copy of a value; the load would wait for that copy, and so for a record that
// is still on its way from memory, and would delay the next look-ups too.

// The sink of Get into a string, which it resizes.
struct StringSink {
  std::string* value;    // receives the value
  bool has_room = true;  // false: there was no memory

  // See Sink.
  HAKO_INLINE char* operator()(std::size_t size) {
    if (value->size() != size) [[unlikely]] {
      has_room = TryResize(*value, size);
      if (!has_room) return nullptr;
    }
    return value->data();
  }
};
// The sink of Get into a span. Skips the copy of a value that does not fit.
struct SpanSink {
  std::span<char> out;   // receives the value
  std::size_t size = 0;  // of the value

  // See Sink.
  HAKO_INLINE char* operator()(std::size_t found) {
    size = found;
    return found <= out.size() ? out.data() : nullptr;
  }
};

}  // namespace internal

// The operations: see the head of this header.
template <class D>
class ReadOperations {
 public:
  // Copies the value into *value, reusing its capacity. NotFound leaves *value unspecified.
  Status Get(StringArg key, std::string* value);

  // Returns a copy of the value. NotFound if absent.
  StatusOr<std::string> Get(StringArg key);

  // Copies the value into `out` if it fits, and returns its size either way. A size above
  // out.size() means that nothing was copied.
  StatusOr<std::size_t> Get(StringArg key, std::span<char> out);
  // Deleted: as a span, a string would offer only its present size. Pass its address to resize it,
  // or std::span(out).
  StatusOr<std::size_t> Get(StringArg key, std::string& out) = delete;
  // Deleted: there is nothing to copy the value to. Contains checks for a key.
  Status Get(StringArg key, std::nullptr_t) = delete;

  // Shows the value without a copy to visitor(std::string_view), with the record's bucket or leaf
  // locked. A tree shows a copy of a value stored out of line.
  template <ValueVisitor V>
  Status Get(StringArg key, V&& visitor) {
    bool found = false;
    HAKO_RETURN_IF_ERROR(self().Process(key, [&](std::optional<std::string_view> value) -> void {
      if (value) visitor(*value);
      found = value.has_value();
    }));
    return found ? absl::OkStatus() : AbsentError();
  }
  template <std::invocable<std::string_view> V>
  requires(!ValueVisitor<V>) Status Get(StringArg, V&&) { return internal::RefuseValueVisitor<V>(); }

  // Returns a copy of the value, or of `fallback` if the key is absent. Other errors are returned.
  StatusOr<std::string> GetOr(StringArg key, StringArg fallback);

  // Returns the value's size. NotFound if absent.
  StatusOr<std::size_t> GetSize(StringArg key);

  // Returns whether the key is present.
  StatusOr<bool> Contains(StringArg key);

  // Shows the value of each key, or nullopt, to visitor(index, value), in order.
  template <MultiReadVisitor V>
  Status GetMulti(std::span<const std::string_view> keys, V&& visitor) {
    char usual[256];
    std::string longer;
    std::string_view value;
    return self().FetchMulti(
        keys,
        [&](std::size_t, std::size_t size) {
          if (size > sizeof(usual)) longer.resize(size);
          char* const out = size > sizeof(usual) ? longer.data() : usual;
          value = {out, size};
          return out;
        },
        [&](std::size_t index, bool found) { visitor(index, found ? std::optional(value) : std::nullopt); });
  }
  template <std::invocable<std::size_t, std::optional<std::string_view>> V>
  requires(!MultiReadVisitor<V>) Status GetMulti(std::span<const std::string_view>, V&&) { return internal::RefuseMultiReadVisitor<V>(); }

  // Copies the value of keys[i] into values[i], reusing its capacity, or resets values[i] if
  // absent. InvalidArgument if values.size() < keys.size().
  Status GetMulti(std::span<const std::string_view> keys, std::span<std::optional<std::string>> values);

  // Sets all records, as they are at one moment (ProcessState in dbm/dbm.h), in another database of any
  // kind. The first error ends the call.
  template <class Target>
  Status Export(Target& target) HAKO_TRY {
    return self().ProcessState([&target](std::string_view key, std::string_view value, std::uint64_t expire_at) -> Status {
      return target.Set(key, value, {.expire_at = expire_at});
    });
  }
  HAKO_OR_NO_MEMORY

 private:
  D& self() { return static_cast<D&>(*this); }
};

template <class D>
Status ReadOperations<D>::Get(StringArg key, std::string* value) {
  internal::StringSink sink{value};
  Status status = self().Fetch(key, sink);
  if (!sink.has_room) [[unlikely]]
    return NoMemoryError();
  return status;
}

template <class D>
StatusOr<std::string> ReadOperations<D>::Get(StringArg key) {
  std::string value;
  HAKO_RETURN_IF_ERROR(Get(key, &value));
  return value;
}

template <class D>
StatusOr<std::size_t> ReadOperations<D>::Get(StringArg key, std::span<char> out) {
  internal::SpanSink sink{out};
  HAKO_RETURN_IF_ERROR(self().Fetch(key, sink));
  return sink.size;
}

template <class D>
StatusOr<std::string> ReadOperations<D>::GetOr(StringArg key, StringArg fallback) HAKO_TRY {
  StatusOr<std::string> value = Get(key);
  if (absl::IsNotFound(value.status())) return std::string(fallback);
  return value;
}
HAKO_OR_NO_MEMORY

template <class D>
StatusOr<std::size_t> ReadOperations<D>::GetSize(StringArg key) {
  return Get(key, std::span<char>());
}

template <class D>
StatusOr<bool> ReadOperations<D>::Contains(StringArg key) {
  Status status = GetSize(key).status();
  if (absl::IsNotFound(status)) return false;
  if (!status.ok()) return status;
  return true;
}

template <class D>
Status ReadOperations<D>::GetMulti(std::span<const std::string_view> keys, std::span<std::optional<std::string>> values) {
  if (values.size() < keys.size()) return absl::InvalidArgumentError("GetMulti: more keys than values");
  return self().FetchMulti(
      keys,
      [values](std::size_t index, std::size_t size) {
        std::optional<std::string>& value = values[index];
        if (!value) value.emplace();
        if (value->size() != size) value->resize(size);
        return value->data();
      },
      [values](std::size_t index, bool found) {
        if (!found) values[index].reset();
      });
}

}  // namespace hako
