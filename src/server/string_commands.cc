// Commands that read and replace whole values.
#include <cstring>
#include <new>
#include <string_view>

#include "server/expire_option.h"
#include "server/handlers.h"

namespace hako::server::commands {

namespace {

using Value = Keyspace::Value;

// A sink that copies a value into the reply, if the reply has room.
struct ReplySink {
  ReplyWriter* reply;
  bool has_room = true;

  char* operator()(std::size_t size) {
    try {
      has_room = true;
      return reply->BeginBulk(size);
    } catch (const std::bad_alloc&) {
      has_room = false;
      return nullptr;
    }
  }
};

// A value that a command replies with and changes. The value is copied into the reply before the
// change, so a reply that is too long leaves the record unchanged.
class OldValue {
 public:
  explicit OldValue(Call& call) : call_(call) {}

  // Returns the copy, valid until Reply. May throw std::bad_alloc.
  std::string_view Take(Value found) {
    exists_ = found.has_value();
    if (!exists_) return {};
    char* const bytes = call_.reply.BeginBulk(found->size());
    if (!found->empty()) std::memcpy(bytes, found->data(), found->size());
    return {bytes, found->size()};
  }
  void Reply() {
    call_.CountLookup(exists_);
    exists_ ? call_.reply.EndBulk() : call_.reply.Null();
  }

 private:
  Call& call_;
  bool exists_ = false;
};

// The options of SET. Redis 7.0 lacks IFEQ; Valkey 8.1 and Redis 8.4 have it.
struct SetArguments {
  bool if_absent = false, if_present = false, returns_old = false, keeps_time = false;
  Value expected;  // for IFEQ: the value that the record must have
  std::uint64_t expire_at = Expiry::kNever;

  bool Allows(Value found) const {
    if (expected) return found == expected;
    return found ? !if_absent : !if_present;
  }
};

// Returns false after replying with an error.
bool ParseSetArguments(Call& call, SetArguments* arguments) {
  std::size_t time = 0;
  TimeUnit unit{};
  for (std::size_t i = 3; i < call.size(); ++i) {
    TimeUnit of{};
    const bool has_condition = arguments->if_absent || arguments->if_present || arguments->expected;
    if (call.Is(i, "nx") && (arguments->if_absent || !has_condition))
      arguments->if_absent = true;
    else if (call.Is(i, "xx") && (arguments->if_present || !has_condition))
      arguments->if_present = true;
    else if (call.Is(i, "ifeq") && !has_condition && i + 1 < call.size())
      arguments->expected = call.arg(++i);
    else if (call.Is(i, "get"))
      arguments->returns_old = true;
    else if (call.Is(i, "keepttl") && time == 0)
      arguments->keeps_time = true;
    else if (IsTimeOption(call.arg(i), &of) && (time == 0 || unit == of) && !arguments->keeps_time && i + 1 < call.size())
      time = ++i, unit = of;  // if the same option is given twice, the last one counts
    else
      return call.FailSyntax(), false;
  }
  return time == 0 || TimeArgument(call, time, unit, &arguments->expire_at);
}

void SetWithTime(Call& call, TimeUnit unit) {
  std::uint64_t time = 0;
  if (!TimeArgument(call, 2, unit, &time)) return;
  if (call.Check(call.keys().Set(call.arg(1), call.arg(3), time))) call.reply.Ok();
}

}  // namespace

void Get(Call& call) {
  ReplySink sink{&call.reply};
  const Status status = call.keys().Fetch(call.arg(1), sink);
  call.CountLookup(status.ok());
  if (status.ok()) [[likely]]
    sink.has_room ? call.reply.EndBulk() : call.Fail(absl::ResourceExhaustedError(""));
  else if (absl::IsNotFound(status))
    call.reply.Null();
  else
    call.Fail(status);
}

void Set(Call& call) {
  SetArguments arguments;
  if (call.size() == 3) [[likely]] {
    if (call.Check(call.keys().Set(call.arg(1), call.arg(2)))) call.reply.Ok();
    return;
  }
  if (!ParseSetArguments(call, &arguments)) return;
  bool is_set = false;
  OldValue old(call);
  const auto set = [&](Value found) {
    if (arguments.returns_old) old.Take(found);
    is_set = arguments.Allows(found);
    if (!is_set) return Action::Keep();
    return arguments.keeps_time && found ? Action::SetKeepingExpiry(call.arg(2)) : Action::Set(call.arg(2), arguments.expire_at);
  };
  if (!call.Check(call.keys().Update(call.arg(1), set))) return;
  if (arguments.returns_old) return old.Reply();
  is_set ? call.reply.Ok() : call.reply.Null();
}

void SetNx(Call& call) {
  bool is_set = false;
  const auto set = [&](Value found) {
    is_set = !found;
    return found ? Action::Keep() : Action::Set(call.arg(2));
  };
  if (call.Check(call.keys().Update(call.arg(1), set))) call.reply.Bool(is_set);
}

void SetEx(Call& call) { SetWithTime(call, {.is_seconds = true, .is_absolute = false}); }
void PSetEx(Call& call) { SetWithTime(call, {.is_seconds = false, .is_absolute = false}); }

void GetSet(Call& call) {
  OldValue old(call);
  const auto set = [&](Value found) {
    old.Take(found);
    return Action::Set(call.arg(2));
  };
  if (call.Check(call.keys().Update(call.arg(1), set))) old.Reply();
}

void GetDel(Call& call) {
  OldValue old(call);
  const auto remove = [&](Value found) {
    old.Take(found);
    return Action::Remove();
  };
  if (call.Check(call.keys().Update(call.arg(1), remove))) old.Reply();
}

void GetEx(Call& call) {
  std::uint64_t time = Expiry::kNever;
  std::size_t time_at = 0;
  bool persists = false;
  TimeUnit unit{};
  for (std::size_t i = 2; i < call.size(); ++i) {
    TimeUnit of{};
    if (call.Is(i, "persist") && time_at == 0)
      persists = true;
    else if (IsTimeOption(call.arg(i), &of) && (time_at == 0 || unit == of) && !persists && i + 1 < call.size())
      time_at = ++i, unit = of;
    else
      return call.FailSyntax();
  }
  if (time_at != 0) {
    const StatusOr<bool> exists = call.keys().Contains(call.arg(1));  // Redis looks up the record before it parses the time
    if (!call.Check(exists.status())) return;
    if (!*exists) return call.CountLookup(false), call.reply.Null();
    if (!TimeArgument(call, time_at, unit, &time)) return call.CountLookup(true);
  }
  if (call.size() == 2) return Get(call);
  OldValue value(call);
  const auto set = [&](Value found, std::uint64_t old_time) {
    const std::string_view copy = value.Take(found);
    return !found || old_time == time ? Action::Keep() : Action::Set(copy, time);
  };
  if (call.Check(call.keys().UpdateTimed(call.arg(1), set))) value.Reply();
}

void MGet(Call& call) {
  const std::size_t begin = call.reply.out().size();
  call.reply.Array(call.size() - 1);
  const Status status = call.keys().ShowMulti(call.args.subspan(1), [&](std::size_t, Value value) {
    call.CountLookup(value.has_value());
    value ? call.reply.Bulk(*value) : call.reply.Null();
  });
  if (status.ok()) return;
  call.reply.out().Truncate(begin);
  call.Fail(status);
}

void MSet(Call& call) {
  if (call.size() % 2 == 0) return call.FailArity();
  if (call.Check(call.keys().SetMulti(call.args.subspan(1), false))) call.reply.Ok();
}

void MSetNx(Call& call) {
  if (call.size() % 2 == 0) return call.FailArity();
  const Status status = call.keys().SetMulti(call.args.subspan(1), true);
  if (absl::IsAborted(status)) return call.reply.Bool(false);
  if (call.Check(status)) call.reply.Bool(true);
}

void StrLen(Call& call) {
  std::size_t size = 0;
  const auto show = [&](Value value) {
    call.CountLookup(value.has_value());
    size = value ? value->size() : 0;
  };
  if (call.Check(call.keys().Show(call.arg(1), show))) call.reply.Integer(static_cast<std::int64_t>(size));
}

}  // namespace hako::server::commands
