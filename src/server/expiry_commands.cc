// Commands on the times at which records expire.
#include <algorithm>
#include <limits>
#include <string>

#include "server/expire_option.h"
#include "server/handlers.h"

namespace hako::server::commands {

namespace {

using Value = Keyspace::Value;

// The condition of EXPIRE on the present expiry time of the record.
struct ExpireCondition {
  bool if_none = false, if_any = false, if_later = false, if_earlier = false;

  // `old` = 0 means never. `when` may be negative, which is in the past.
  bool Holds(std::uint64_t old, std::int64_t when) const {
    const auto time = static_cast<std::int64_t>(old);
    if (old == Expiry::kNever) return !if_any && !if_later;
    return !if_none && !(if_later && when <= time) && !(if_earlier && when >= time);
  }
};

bool ParseCondition(Call& call, ExpireCondition* condition) {
  for (std::size_t i = 3; i < call.size(); ++i) {
    if (call.Is(i, "nx"))
      condition->if_none = true;
    else if (call.Is(i, "xx"))
      condition->if_any = true;
    else if (call.Is(i, "gt"))
      condition->if_later = true;
    else if (call.Is(i, "lt"))
      condition->if_earlier = true;
    else
      return call.Fail("ERR Unsupported option " + std::string(call.arg(i))), false;
  }
  if (condition->if_none && (condition->if_any || condition->if_later || condition->if_earlier))
    return call.Fail("ERR NX and XX, GT or LT options at the same time are not compatible"), false;
  if (condition->if_later && condition->if_earlier) return call.Fail("ERR GT and LT options at the same time are not compatible"), false;
  return true;
}

void ExpireIn(Call& call, TimeUnit unit) {
  static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max(), kMin = std::numeric_limits<std::int64_t>::min();
  ExpireCondition condition;
  if (!ParseCondition(call, &condition)) return;
  std::int64_t when = 0;
  if (!call.Integer(2, &when)) return;
  if (unit.is_seconds && (when > kMax / 1000 || when < kMin / 1000)) return FailTime(call);
  if (unit.is_seconds) when *= 1000;
  const auto now = static_cast<std::int64_t>(call.keys().Now());
  const std::int64_t base = unit.is_absolute ? 0 : now;
  if (when > kMax - base) return FailTime(call);
  when += base;
  if (!call.keys().KeepsTimes()) return FailNoTimes(call);
  const std::uint64_t time = when <= now ? Expiry::kNever : std::min(static_cast<std::uint64_t>(when), Expiry::kTimeMax);
  bool is_done = false;
  std::string value;
  const auto expire = [&](Value found, std::uint64_t old) {
    is_done = found && condition.Holds(old, when);
    if (!is_done) return Action::Keep();
    if (time == Expiry::kNever) return Action::Remove();
    value = *found;
    return Action::Set(value, time);
  };
  if (call.Check(call.keys().UpdateTimed(call.arg(1), expire))) call.reply.Bool(is_done);
}

// Replies with -2 for an absent record, and with -1 for one that never expires.
void ReplyTime(Call& call, bool is_seconds, bool is_absolute) {
  const StatusOr<std::uint64_t> found = call.keys().GetExpiry(call.arg(1));
  call.CountLookup(found.ok());
  if (absl::IsNotFound(found.status())) return call.reply.Integer(-2);
  if (!call.Check(found.status())) return;
  if (*found == Expiry::kNever) return call.reply.Integer(-1);
  auto time = static_cast<std::int64_t>(*found);
  if (!is_absolute) time = std::max<std::int64_t>(time - static_cast<std::int64_t>(call.keys().Now()), 0);
  call.reply.Integer(is_seconds ? (time + 500) / 1000 : time);
}

}  // namespace

void Expire(Call& call) { ExpireIn(call, {.is_seconds = true, .is_absolute = false}); }
void PExpire(Call& call) { ExpireIn(call, {.is_seconds = false, .is_absolute = false}); }
void ExpireAt(Call& call) { ExpireIn(call, {.is_seconds = true, .is_absolute = true}); }
void PExpireAt(Call& call) { ExpireIn(call, {.is_seconds = false, .is_absolute = true}); }
void Ttl(Call& call) { ReplyTime(call, true, false); }
void PTtl(Call& call) { ReplyTime(call, false, false); }
void ExpireTime(Call& call) { ReplyTime(call, true, true); }
void PExpireTime(Call& call) { ReplyTime(call, false, true); }

void Persist(Call& call) {
  bool had_time = false;
  std::string value;
  const auto persist = [&](Value found, std::uint64_t time) {
    had_time = found && time != Expiry::kNever;
    if (!had_time) return Action::Keep();
    value = *found;
    return Action::Set(value);
  };
  if (call.Check(call.keys().UpdateTimed(call.arg(1), persist))) call.reply.Bool(had_time);
}

}  // namespace hako::server::commands
