#include "hako/dbm/database_records.h"

#include <cstring>
#include <optional>
#include <vector>

namespace hako {

Status DatabaseRecords::RedoTogether(std::span<const format::LogEntry> run) {
  std::vector<std::string_view> keys;
  std::vector<Action> actions;
  std::vector<KeyRange> ranges;
  std::optional<std::uint64_t> applied_index;
  bool is_valid = true;
  for (const format::LogEntry& entry : run) {
    switch (entry.op) {
      case format::LogOp::kSet:
      case format::LogOp::kRemove:
        keys.push_back(entry.key);
        actions.push_back(entry.op == format::LogOp::kSet ? Action::Set(entry.value) : Action::Remove());
        break;
      case format::LogOp::kRemoveRange:
      case format::LogOp::kRemoveFrom:  // they come first
        is_valid = is_valid && keys.empty();
        ranges.push_back({entry.key, entry.op == format::LogOp::kRemoveRange ? std::optional(entry.value) : std::nullopt});
        break;
      case format::LogOp::kAppliedIndex: {
        Le<std::uint64_t> index = 0;
        is_valid = is_valid && entry.value.size() == sizeof(index);
        if (is_valid) std::memcpy(static_cast<void*>(&index), entry.value.data(), sizeof(index));
        applied_index = index;
        break;
      }
      default:
        is_valid = false;
    }
  }
  if (!is_valid) return absl::DataLossError("the log has a record that does not belong there");
  const auto action_of = [&actions](std::size_t i, std::optional<std::string_view>) { return std::optional(actions[i]); };
  return RedoMulti({keys, action_of, 0, ranges, applied_index});
}

}  // namespace hako
