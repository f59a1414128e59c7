// Checks whether a concurrent history of one register is linearizable: whether its operations could
// have happened one after the other, each between its call and its return, with the results that
// were seen. The search is Wing and Gong's with the memory of Lowe ("Testing for linearizability",
// 2017): it tries operations in the order of their calls and never visits a (set of operations
// done, state) twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/endian.h"

namespace hako {

// A number as Increment keeps it: 8 big-endian bytes.
inline std::string EncodeNumber(std::int64_t number) {
  std::string bytes(8, '\0');
  StoreBigEndian(static_cast<std::uint64_t>(number), bytes.data());
  return bytes;
}
inline std::int64_t DecodeNumber(std::string_view bytes) { return static_cast<std::int64_t>(LoadBigEndian(bytes.data())); }

// One operation on one key.
struct HistoryEvent {
  enum class Kind { kGet, kSet, kInsert, kRemove, kCompareExchange, kAppend, kIncrement };
  Kind kind = Kind::kGet;
  std::string argument{};                 // the value set, appended or desired, or the number added
  std::optional<std::string> expected{};  // by kCompareExchange
  bool ok = false;       // it found a record (get, remove), none (insert), what it expected (compare-exchange), a number (increment)
  std::string result{};  // the result of get and increment
  std::uint64_t call = 0, end = 0;  // times: unique over the history
};

using RegisterState = std::optional<std::string>;

// The state after `event`, or nullopt if its result is impossible in `state`.
inline std::optional<RegisterState> Step(const RegisterState& state, const HistoryEvent& event) {
  using Kind = HistoryEvent::Kind;
  using After = std::optional<RegisterState>;
  const auto if_true = [](bool possible, RegisterState after) { return possible ? After(std::in_place, std::move(after)) : After(); };
  switch (event.kind) {
    case Kind::kGet:
      return if_true(event.ok == state.has_value() && (!event.ok || event.result == *state), state);
    case Kind::kSet:
      return After(std::in_place, event.argument);
    case Kind::kInsert:
      return if_true(event.ok == !state.has_value(), event.ok ? RegisterState(event.argument) : state);
    case Kind::kRemove:
      return if_true(event.ok == state.has_value(), std::nullopt);
    case Kind::kCompareExchange:
      return if_true(event.ok == (state == event.expected), event.ok ? RegisterState(event.argument) : state);
    case Kind::kAppend:
      return After(std::in_place, state.value_or("") + event.argument);
    case Kind::kIncrement: {
      const bool is_number = !state || state->size() == 8;
      if (event.ok != is_number || !is_number) return if_true(event.ok == is_number, state);
      const std::int64_t sum = DecodeNumber(state.value_or(EncodeNumber(0))) + DecodeNumber(event.argument);
      return if_true(event.result == EncodeNumber(sum), RegisterState(event.result));
    }
  }
  return std::nullopt;
}

inline bool IsLinearizable(std::vector<HistoryEvent> events) {
  std::ranges::sort(events, {}, &HistoryEvent::call);
  const std::size_t n = events.size();
  // A list of calls and returns in order of time, from which an operation is removed when it is
  // placed. Node i is the call of event i, n + i its return, 2n the head and the end.
  std::vector<std::size_t> next(2 * n + 1), previous(2 * n + 1), nodes(2 * n);
  for (std::size_t i = 0; i < 2 * n; ++i) nodes[i] = i;
  std::ranges::sort(nodes, {}, [&](std::size_t node) { return node < n ? events[node].call : events[node - n].end; });
  std::size_t last = 2 * n;
  for (const std::size_t node : nodes) {
    next[last] = node;
    previous[node] = last;
    last = node;
  }
  next[last] = 2 * n;
  previous[2 * n] = last;
  const auto take_out = [&](std::size_t node) {
    next[previous[node]] = next[node];
    previous[next[node]] = previous[node];
  };
  const auto put_back = [&](std::size_t node) { next[previous[node]] = previous[next[node]] = node; };

  std::string done(n, '0');  // '1' at the events placed
  std::set<std::pair<std::string, RegisterState>> visited;
  std::vector<std::pair<std::size_t, RegisterState>> path;  // the event placed, and the state before it
  RegisterState state;
  std::size_t node = next[2 * n];
  while (next[2 * n] != 2 * n) {
    if (node < n) {  // a call: may this operation be the next?
      const auto after = Step(state, events[node]);
      done[node] = '1';
      if (after && visited.emplace(done, *after).second) {
        path.emplace_back(node, state);
        state = *after;
        take_out(node);
        take_out(n + node);
        node = next[2 * n];
      } else {
        done[node] = '0';
        node = next[node];
      }
    } else {  // the return of an operation not placed: backtrack
      if (path.empty()) return false;
      node = path.back().first;
      state = path.back().second;
      path.pop_back();
      done[node] = '0';
      put_back(n + node);
      put_back(node);
      node = next[node];
    }
  }
  return true;
}

}  // namespace hako
