// ModelDBM: a std::map under a mutex, too simple to be wrong. The other DBMs are compared with it,
// and it passes the conformance suites first.
//
// Threads: as any DBM. An iterator has copies, so it shows each record as it was when the iterator
// moved to it.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/status.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/ordered_operations.h"

namespace hako {

class ModelDBM : public Operations<ModelDBM>, public OrderedOperations<ModelDBM, BytewiseComparator> {
 public:
  using Records = std::map<std::string, std::string, std::less<>>;

  // The records outlive the ModelDBM, as a file outlives a HashDBM.
  explicit ModelDBM(std::shared_ptr<Records> records = std::make_shared<Records>()) : records_(std::move(records)) {}

  template <Visitor V>
  Status Process(std::string_view key, V&& visitor) {
    if (key.size() > kKeySizeMax) return absl::OutOfRangeError("the key is too long");
    std::lock_guard lock(mutex_);
    const auto it = records_->find(key);
    const bool exists = it != records_->end();
    const auto value = exists ? std::optional<std::string_view>(it->second) : std::nullopt;
    using VisitorType = std::remove_reference_t<V>;
    if constexpr (ReadVisitor<VisitorType>) {
      visitor(value);
      return absl::OkStatus();
    } else if constexpr (UpdateVisitor<VisitorType>) {
      return Carry(key, it, visitor(value));
    } else {
      return Carry(key, it, visitor(exists));
    }
  }

  // Makes the decisions on copies, which then replace the records.
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor, std::uint64_t* = nullptr) {
    const auto visit = [&](std::size_t i, std::optional<std::string_view> value) -> std::optional<Action> {
      if constexpr (MultiReadVisitor<std::remove_reference_t<V>>)
        return visitor(i, value), Action::Keep();
      else
        return visitor(i, value);
    };
    return ProcessMulti(Batch<Action>{keys, MultiUpdateRef(visit)});
  }
  Status ProcessMulti(const Batch<Action>& batch) {
    const auto keys = batch.keys;
    std::lock_guard lock(mutex_);
    std::map<std::string, std::optional<std::string>, std::less<>> after;  // nullopt = no record
    std::set<std::string, std::less<>> kept;                               // keys that no action is for
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i].size() > kKeySizeMax) return absl::OutOfRangeError("the key is too long");
      const auto it = records_->find(keys[i]);
      const auto place = after.try_emplace(std::string(keys[i]), it != records_->end() ? std::optional(it->second) : std::nullopt);
      auto& value = place.first->second;
      if (place.second) kept.emplace(keys[i]);
      const std::optional<Action> action = batch.visit(i, value);
      if (!action) return MismatchError();
      if (action->value().size() > kValueSizeMax) return absl::OutOfRangeError("the value is too long");
      if (action->kind() != Action::Kind::kKeep) kept.erase(std::string(keys[i]));
      if (action->kind() == Action::Kind::kSet) value = std::string(action->value());
      if (action->kind() == Action::Kind::kRemove) value.reset();
    }
    for (const KeyRange& range : batch.removed_ranges) {
      const auto [begin, end] = PlacesOf(range.from, range.to);
      records_->erase(begin, end);
    }
    if (batch.applied_index) applied_index_ = *batch.applied_index;
    for (auto& [key, value] : after) {
      if (kept.contains(key)) continue;
      if (value) {
        records_->insert_or_assign(key, std::move(*value));
      } else {
        records_->erase(key);
      }
    }
    return absl::OkStatus();
  }

  template <Sink S>
  Status Fetch(std::string_view key, S&& sink) {
    std::lock_guard lock(mutex_);
    const auto it = records_->find(key);
    if (it == records_->end()) return AbsentError();
    if (char* out = sink(it->second.size())) it->second.copy(out, it->second.size());
    return absl::OkStatus();
  }

  // Records do not expire.
  const Expiry* expiry() const { return nullptr; }
  Status SetExpiry(std::string_view, std::uint64_t) { return Expiry::NoTimesError(); }
  StatusOr<std::uint64_t> GetExpiry(std::string_view key) {
    HAKO_RETURN_IF_ERROR(GetSize(key).status());
    return Expiry::kNever;
  }
  StatusOr<std::uint64_t> RemoveExpired() { return std::uint64_t{0}; }

  // Scans by key, one record under the lock at a time, so writers can run between two records.
  template <class V>
  Status ProcessEach(V&& visitor) {
    auto it = MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
    return absl::OkStatus();
  }

  template <class V>
  Status ProcessEachParallel(unsigned, V&& visitor) {
    return ProcessEach(visitor);
  }

  Status ProcessState(StateRef visitor, const OnDamage& = {}) {
    const Records state = [&] {
      std::lock_guard lock(mutex_);
      return *records_;
    }();
    for (const auto& [key, value] : state) HAKO_RETURN_IF_ERROR(visitor(key, value, Expiry::kNever));
    return absl::OkStatus();
  }

  class Iterator : public CursorOperations<Iterator> {
   public:
    explicit Iterator(ModelDBM* db) : db_(db) {}
    void First() {
      MoveTo([](const Records& records) { return records.begin(); });
    }
    void Last() {
      MoveTo([](const Records& records) { return Before(records, records.end()); });
    }
    void Jump(std::string_view key) { JumpUpper(key, true); }
    void JumpUpper(std::string_view key, bool inclusive = false) {
      MoveTo([&](const Records& records) { return inclusive ? records.lower_bound(key) : records.upper_bound(key); });
    }
    void JumpLower(std::string_view key, bool inclusive = false) {
      MoveTo([&](const Records& records) { return Before(records, inclusive ? records.upper_bound(key) : records.lower_bound(key)); });
    }
    void Next() { JumpUpper(key_, false); }
    void Previous() { JumpLower(key_, false); }
    bool Valid() const { return valid_; }
    std::string_view key() const { return key_; }
    std::string_view value() const { return value_; }
    std::uint64_t expire_at() const { return Expiry::kNever; }
    const Status& status() const { return status_; }
    ModelDBM& database() { return *db_; }

   private:
    static Records::const_iterator Before(const Records& records, Records::const_iterator place) {
      return place == records.begin() ? records.end() : std::prev(place);
    }
    template <class Find>
    void MoveTo(Find find) {
      std::lock_guard lock(db_->mutex_);
      const auto it = find(*db_->records_);
      valid_ = it != db_->records_->end();
      if (!valid_) return;
      key_ = it->first;
      value_ = it->second;
    }
    ModelDBM* db_;
    bool valid_ = false;
    std::string key_;
    std::string value_;
    Status status_;
  };
  Iterator MakeIterator() { return Iterator(this); }

  std::uint64_t Count() const {
    std::lock_guard lock(mutex_);
    return records_->size();
  }
  std::uint64_t AppliedIndex() const {
    std::lock_guard lock(mutex_);
    return applied_index_;
  }
  StatusOr<std::uint64_t> CountKeys(std::string_view from, std::optional<std::string_view> to) const {
    std::lock_guard lock(mutex_);
    const auto [begin, end] = PlacesOf(from, to);
    return static_cast<std::uint64_t>(std::distance(begin, end));
  }
  StatusOr<std::uint64_t> RemoveKeys(std::string_view from, std::optional<std::string_view> to) {
    std::lock_guard lock(mutex_);
    const auto [begin, end] = PlacesOf(from, to);
    const auto count = static_cast<std::uint64_t>(std::distance(begin, end));
    records_->erase(begin, end);
    return count;
  }
  Status Clear() {
    std::lock_guard lock(mutex_);
    records_->clear();
    return absl::OkStatus();
  }
  Stats GetStats() const {
    std::lock_guard lock(mutex_);
    Stats stats;
    stats.num_records = records_->size();
    for (const auto& [key, value] : *records_) stats.record_bytes += key.size() + value.size();
    stats.index_bytes = stats.num_records * sizeof(Records::value_type);
    stats.total_bytes = stats.record_bytes + stats.index_bytes;
    stats.num_buckets = 1;
    return stats;
  }
  Inspection Inspect() const { return {{"class", "ModelDBM"}, {"num_records", std::to_string(Count())}}; }
  Status Synchronize(SyncMode) { return absl::OkStatus(); }
  static std::uint64_t LastLsn() { return 0; }
  Status WaitDurable(std::uint64_t) { return absl::OkStatus(); }
  Status GetHealth() const { return absl::OkStatus(); }
  Status CheckOpen() const { return absl::OkStatus(); }
  Status CheckReads() const { return absl::OkStatus(); }
  Status CheckIdle() const { return absl::OkStatus(); }
  Status Verify() { return absl::OkStatus(); }
  Status Close() { return absl::OkStatus(); }

  Records CopyRecords() const {
    std::lock_guard lock(mutex_);
    return *records_;
  }

 private:
  std::pair<Records::iterator, Records::iterator> PlacesOf(std::string_view from, std::optional<std::string_view> to) const {
    return {records_->lower_bound(from), to ? records_->lower_bound(*to) : records_->end()};
  }
  Status Carry(std::string_view key, Records::iterator it, Action action) {
    if (action.kind() == Action::Kind::kRemove && it != records_->end()) records_->erase(it);
    if (action.kind() != Action::Kind::kSet) return absl::OkStatus();
    if (action.value().size() > kValueSizeMax) return absl::OutOfRangeError("the value is too long");
    if (it != records_->end()) {
      it->second.assign(action.value());
    } else {
      records_->emplace(key, action.value());
    }
    return absl::OkStatus();
  }

  mutable std::mutex mutex_;
  std::shared_ptr<Records> records_;
  std::uint64_t applied_index_ = 0;
};

static_assert(DBM<ModelDBM>);

}  // namespace hako
