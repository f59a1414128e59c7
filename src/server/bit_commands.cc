// Commands on the bits of a value. Bit 0 is the highest one of the first byte. SETBIT stores the
// whole value again, so its time grows with the size of the value.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "hako/base/assert.h"
#include "server/handlers.h"
#include "server/number_text.h"

namespace hako::server::commands {

namespace {

using Value = Keyspace::Value;

// Parses the number of a bit. Replies with an error if no value may have that bit.
bool BitArgument(Call& call, std::size_t i, std::size_t* bit) {
  const auto number = ParseInteger(call.arg(i));
  if (!number || *number < 0 || (*number >> 3) >= call.server().settings.bulk_max.load(std::memory_order_relaxed))
    return call.Fail("ERR bit offset is not an integer or out of range"), false;
  *bit = static_cast<std::size_t>(*number);
  return true;
}

unsigned char MaskOf(std::size_t bit) { return static_cast<unsigned char>(0x80 >> (bit % 8)); }
bool BitOf(std::string_view value, std::size_t bit) {
  return bit / 8 < value.size() && (static_cast<unsigned char>(value[bit / 8]) & MaskOf(bit)) != 0;
}

std::int64_t CountBits(std::string_view bytes) {
  std::int64_t count = 0;
  std::uint64_t word = 0;
  for (; bytes.size() >= sizeof(word); bytes.remove_prefix(sizeof(word))) {
    std::memcpy(&word, bytes.data(), sizeof(word));
    count += std::popcount(word);
  }
  for (const char c : bytes) count += std::popcount(static_cast<unsigned char>(c));
  return count;
}

// Returns how many of the bits [first, last] are 1. REQUIRES: first <= last, and the value has them
std::int64_t CountBits(std::string_view value, std::size_t first, std::size_t last) {
  HAKO_DCHECK(first <= last && last / 8 < value.size());
  std::int64_t count = CountBits(value.substr(first / 8, last / 8 - first / 8 + 1));
  for (std::size_t bit = first / 8 * 8; bit < first; ++bit) count -= BitOf(value, bit) ? 1 : 0;
  for (std::size_t bit = last + 1; bit < last / 8 * 8 + 8; ++bit) count -= BitOf(value, bit) ? 1 : 0;
  return count;
}

// BITCOUNT of an existing value. As in Redis, the arguments are not parsed for an absent one.
void ReplyBitCount(Call& call, std::string_view value) {
  if (call.size() == 2) return call.reply.Integer(CountBits(value));
  if (call.size() != 4 && call.size() != 5) return call.FailSyntax();
  std::int64_t from = 0, to = 0;
  if (!call.Integer(2, &from) || !call.Integer(3, &to)) return;
  if (from < 0 && to < 0 && from > to) return call.reply.Integer(0);
  const bool by_bit = call.size() == 5 && call.Is(4, "bit");
  if (call.size() == 5 && !by_bit && !call.Is(4, "byte")) return call.FailSyntax();
  const auto size = static_cast<std::int64_t>(value.size()) * (by_bit ? 8 : 1);
  from = std::max<std::int64_t>(from < 0 ? from + size : from, 0);
  to = std::min(std::max<std::int64_t>(to < 0 ? to + size : to, 0), size - 1);
  if (from > to) return call.reply.Integer(0);
  const auto first = static_cast<std::size_t>(from), last = static_cast<std::size_t>(to);
  call.reply.Integer(by_bit ? CountBits(value, first, last) : CountBits(value.substr(first, last - first + 1)));
}

}  // namespace

void SetBit(Call& call) {
  std::size_t bit = 0;
  if (!BitArgument(call, 2, &bit)) return;
  if (call.arg(3) != "0" && call.arg(3) != "1") return call.Fail("ERR bit is not an integer or out of range");
  if (!call.CheckSize(bit / 8 + 1)) return;
  const bool is_on = call.arg(3) == "1";
  bool was_on = false;
  std::string value;
  const auto set = [&](Value found) {
    const std::string_view old = found.value_or("");
    was_on = BitOf(old, bit);
    if (bit / 8 < old.size() && was_on == is_on) return Action::Keep();
    value.reserve(std::max(old.size(), bit / 8 + 1));
    value = old;
    value.resize(std::max(old.size(), bit / 8 + 1));
    value[bit / 8] = static_cast<char>(static_cast<unsigned char>(value[bit / 8]) ^ (was_on != is_on ? MaskOf(bit) : 0));
    return Action::SetKeepingExpiry(value);
  };
  if (call.Check(call.keys().Update(call.arg(1), set))) call.reply.Bool(was_on);
}

void GetBit(Call& call) {
  std::size_t bit = 0;
  if (!BitArgument(call, 2, &bit)) return;
  bool is_on = false;
  const auto show = [&](Value value) {
    call.CountLookup(value.has_value());
    is_on = value && BitOf(*value, bit);
  };
  if (call.Check(call.keys().Show(call.arg(1), show))) call.reply.Bool(is_on);
}

void BitCount(Call& call) {
  const auto show = [&](Value value) {
    call.CountLookup(value.has_value());
    value ? ReplyBitCount(call, *value) : call.reply.Integer(0);
  };
  call.Check(call.keys().Show(call.arg(1), show));
}

}  // namespace hako::server::commands
