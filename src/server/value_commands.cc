// Commands that change a part of a value, or treat it as a number. Each command visits its record
// once and stores the whole value again, so its time grows with the size of the value.
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "server/handlers.h"
#include "server/number_text.h"

namespace hako::server::commands {

namespace {

using Value = Keyspace::Value;

constexpr const char* kNoInteger = "ERR value is not an integer or out of range";
constexpr const char* kTooLong = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

bool IsTooLong(const Call& call, std::size_t size, std::size_t more) {
  return size + more > static_cast<std::size_t>(call.server().settings.bulk_max.load(std::memory_order_relaxed)) || size + more < size;
}

void Add(Call& call, std::int64_t delta) {
  const char* error = nullptr;
  std::int64_t sum = 0;
  IntegerText text(0);
  const auto add = [&](Value found) {
    const auto old = found ? ParseInteger(*found) : 0;
    if (!old)
      error = kNoInteger;
    else if (__builtin_add_overflow(*old, delta, &sum))
      error = "ERR increment or decrement would overflow";
    if (error != nullptr) return Action::Keep();
    text = IntegerText(sum);
    return Action::SetKeepingExpiry(text.view());
  };
  if (!call.Check(call.keys().Update(call.arg(1), add))) return;
  error != nullptr ? call.Fail(error) : call.reply.Integer(sum);
}

}  // namespace

void Incr(Call& call) { Add(call, 1); }
void Decr(Call& call) { Add(call, -1); }
void IncrBy(Call& call) {
  if (std::int64_t delta = 0; call.Integer(2, &delta)) Add(call, delta);
}
void DecrBy(Call& call) {
  std::int64_t delta = 0;
  if (!call.Integer(2, &delta)) return;
  if (delta == std::numeric_limits<std::int64_t>::min()) return call.Fail("ERR decrement would overflow");
  Add(call, -delta);
}

void IncrByFloat(Call& call) {
  const auto delta = ParseFloat(call.arg(2));
  const char* error = nullptr;
  std::string text;
  const auto add = [&](Value found) {
    const auto old = found ? ParseFloat(*found) : 0;
    if (!old || !delta)
      error = "ERR value is not a valid float";
    else if (!std::isfinite(*old + *delta))
      error = "ERR increment would produce NaN or Infinity";
    if (error != nullptr) return Action::Keep();
    text = FloatText(*old + *delta);
    return Action::SetKeepingExpiry(text);
  };
  if (!call.Check(call.keys().Update(call.arg(1), add))) return;
  error != nullptr ? call.Fail(error) : call.reply.Bulk(text);
}

void Append(Call& call) {
  bool is_too_long = false;
  std::string value;
  const auto append = [&](Value found) {
    const std::string_view old = found.value_or("");
    is_too_long = found && IsTooLong(call, old.size(), call.arg(2).size());
    if (is_too_long) return Action::Keep();
    value.reserve(old.size() + call.arg(2).size());
    value.append(old).append(call.arg(2));
    return Action::SetKeepingExpiry(value);
  };
  if (!call.Check(call.keys().Update(call.arg(1), append))) return;
  is_too_long ? call.Fail(kTooLong) : call.reply.Integer(static_cast<std::int64_t>(value.size()));
}

void SetRange(Call& call) {
  std::int64_t offset = 0;
  if (!call.Integer(2, &offset)) return;
  if (offset < 0) return call.Fail("ERR offset is out of range");
  const std::string_view part = call.arg(3);
  const auto begin = static_cast<std::size_t>(offset);
  if (!part.empty() && !IsTooLong(call, begin, part.size()) && !call.CheckSize(begin + part.size())) return;
  bool is_too_long = false;
  std::string value;
  std::size_t size = 0;
  const auto replace = [&](Value found) {
    size = found ? found->size() : 0;
    is_too_long = !part.empty() && IsTooLong(call, begin, part.size());
    if (is_too_long || part.empty()) return Action::Keep();
    value = found.value_or("");
    if (value.size() < begin + part.size()) value.resize(begin + part.size());
    value.replace(begin, part.size(), part);
    size = value.size();
    return Action::SetKeepingExpiry(value);
  };
  if (!call.Check(call.keys().Update(call.arg(1), replace))) return;
  is_too_long ? call.Fail(kTooLong) : call.reply.Integer(static_cast<std::int64_t>(size));
}

void GetRange(Call& call) {
  std::int64_t start = 0, end = 0;
  if (!call.Integer(2, &start) || !call.Integer(3, &end)) return;
  const auto show = [&](Value value) {
    call.CountLookup(value.has_value());
    const auto size = static_cast<std::int64_t>(value ? value->size() : 0);
    if (size == 0 || (start < 0 && end < 0 && start > end)) return call.reply.Bulk("");
    const std::int64_t from = std::max<std::int64_t>(start < 0 ? size + start : start, 0);
    const std::int64_t to = std::min(std::max<std::int64_t>(end < 0 ? size + end : end, 0), size - 1);
    call.reply.Bulk(from > to ? std::string_view()
                              : value->substr(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from + 1)));
  };
  call.Check(call.keys().Show(call.arg(1), show));
}

}  // namespace hako::server::commands
