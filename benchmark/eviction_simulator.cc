// Compares policies of eviction by their hit ratios, without a database:
//   eviction_simulator [records of the cache, in thousands] [requests, in thousands]
// All records have the same size. "groups" is what TinyDBM does (hash/record_limit.h), with one of the 16
// buckets of a step that the hand visits in place of all of them; "buckets" is CLOCK in the order of the
// buckets, with the one bit that it would need.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cache_traces.h"

namespace {

using Key = std::uint64_t;

class Policy {
 public:
  explicit Policy(std::size_t capacity) : capacity_(capacity) {}
  virtual ~Policy() = default;
  // Returns whether the key is cached; inserts it if not.
  virtual bool Request(Key key) = 0;

 protected:
  const std::size_t capacity_;
};

class Lru : public Policy {
 public:
  using Policy::Policy;
  bool Request(Key key) override {
    if (const auto found = places_.find(key); found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return true;
    }
    if (places_.size() == capacity_) {
      places_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(key);
    places_[key] = order_.begin();
    return false;
  }

 private:
  std::list<Key> order_;
  absl::flat_hash_map<Key, std::list<Key>::iterator> places_;
};

// FIFO, CLOCK (a used record gets another round) and SIEVE (it stays where it is).
class Queue : public Policy {
 public:
  Queue(std::size_t capacity, bool has_bit, bool stays) : Policy(capacity), has_bit_(has_bit), stays_(stays) {}
  bool Request(Key key) override {
    if (const auto found = used_.find(key); found != used_.end()) {
      found->second = has_bit_;
      return true;
    }
    while (used_.size() == capacity_) {
      if (ahead_.empty()) ahead_.swap(behind_);
      const Key oldest = ahead_.front();
      ahead_.pop_front();
      bool& used = used_[oldest];
      if (!used)
        used_.erase(oldest);
      else
        (stays_ ? behind_ : ahead_).push_back(oldest), used = false;
    }
    ahead_.push_back(key);
    used_[key] = false;
    return false;
  }

 private:
  const bool has_bit_, stays_;
  std::deque<Key> ahead_, behind_;  // of the hand
  absl::flat_hash_map<Key, bool> used_;
};

class S3Fifo : public Policy {
 public:
  S3Fifo(std::size_t capacity, bool has_ghosts) : Policy(capacity), has_ghosts_(has_ghosts) {}
  bool Request(Key key) override {
    if (const auto found = uses_.find(key); found != uses_.end()) {
      found->second = std::min(3, found->second + 1);
      return true;
    }
    while (uses_.size() == capacity_) small_.size() > capacity_ / 10 || main_.empty() ? EvictSmall() : EvictMain();
    (ghosts_.erase(key) != 0 ? main_ : small_).push_back(key);
    uses_[key] = 0;
    return false;
  }

 private:
  void EvictSmall() {
    const Key oldest = small_.front();
    small_.pop_front();
    if (int& uses = uses_[oldest]; uses > 1) {
      uses = 0;
      main_.push_back(oldest);
      return;
    }
    uses_.erase(oldest);
    if (!has_ghosts_ || !ghosts_.insert(oldest).second) return;
    ghost_order_.push_back(oldest);
    for (; ghost_order_.size() > capacity_; ghost_order_.pop_front()) ghosts_.erase(ghost_order_.front());
  }
  void EvictMain() {
    const Key oldest = main_.front();
    main_.pop_front();
    if (int& uses = uses_[oldest]; uses > 0) {
      --uses;
      main_.push_back(oldest);
    } else {
      uses_.erase(oldest);
    }
  }

  const bool has_ghosts_;
  std::deque<Key> small_, main_, ghost_order_;
  absl::flat_hash_map<Key, int> uses_;
  absl::flat_hash_set<Key> ghosts_;
};

// A walk of the table in the order of the buckets, a group of records at a time.
class Walk : public Policy {
 public:
  // A step evicts one of `one_of` records. `share`: of new records in a group; 0 = all are alike.
  Walk(std::size_t capacity, std::size_t group, std::size_t one_of, double share)
      : Policy(capacity), one_of_(one_of), share_(share), groups_(std::max<std::size_t>(1, capacity / group)) {}
  bool Request(Key key) override {
    Group& group = groups_[hako::MixBits(key) % groups_.size()];
    const auto found = std::find_if(group.begin(), group.end(), [key](const Record& record) { return record.key == key; });
    if (found != group.end()) return found->used = true;
    while (size_ == capacity_) Step();
    group.push_back({key});
    ++size_;
    return false;
  }

 private:
  struct Record {
    Key key;
    bool used = false, kept = false;
  };
  using Group = std::vector<Record>;

  void Step() {
    Group& group = groups_[hand_++ % groups_.size()];
    std::size_t fresh = 0;
    for (Record& record : group) {
      if (!record.kept && record.used && share_ != 0) record.kept = true, record.used = false;
      fresh += record.kept ? 0 : 1;
    }
    const auto most = static_cast<std::size_t>(share_ * static_cast<double>(group.size()));
    const std::size_t all = std::max<std::size_t>(1, (group.size() + one_of_ / 2) / one_of_);
    std::size_t left_fresh = share_ == 0 ? all : std::min(all, fresh - std::min(fresh, most));
    std::size_t left_kept = all - left_fresh;
    const std::size_t start = group.empty() ? 0 : hand_ / groups_.size() * 37 % group.size();
    std::rotate(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(start), group.end());
    const auto goes = [&](Record& record) {
      std::size_t& left = record.kept ? left_kept : left_fresh;
      if (left == 0) return false;
      if (record.used) return record.used = false;
      return --left, true;
    };
    size_ -= std::erase_if(group, goes);
  }

  const std::size_t one_of_;
  const double share_;
  std::vector<Group> groups_;
  std::size_t size_ = 0, hand_ = 0;
};

struct Named {
  const char* name;
  std::unique_ptr<Policy> (*make)(std::size_t capacity);
};
template <class P, auto... args>
std::unique_ptr<Policy> Make(std::size_t capacity) {
  return std::make_unique<P>(capacity, args...);
}
constexpr Named kPolicies[] = {
    {"LRU", &Make<Lru>},
    {"FIFO", &Make<Queue, false, false>},
    {"CLOCK", &Make<Queue, true, false>},
    {"SIEVE", &Make<Queue, true, true>},
    {"S3-FIFO", &Make<S3Fifo, true>},
    {"S3-FIFO without ghosts", &Make<S3Fifo, false>},
    {"buckets: CLOCK, 8 records a step", [](std::size_t c) -> std::unique_ptr<Policy> { return std::make_unique<Walk>(c, 8, 8, 0); }},
    {"groups of 32, new 1/4", [](std::size_t c) -> std::unique_ptr<Policy> { return std::make_unique<Walk>(c, 32, 16, .25); }},
    {"groups of 128, new 1/4", [](std::size_t c) -> std::unique_ptr<Policy> { return std::make_unique<Walk>(c, 128, 16, .25); }},
    {"groups of 128, new 1/10", [](std::size_t c) -> std::unique_ptr<Policy> { return std::make_unique<Walk>(c, 128, 16, .1); }},
    {"groups of 128, new 2/5", [](std::size_t c) -> std::unique_ptr<Policy> { return std::make_unique<Walk>(c, 128, 16, .4); }},
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t records = 1000 * static_cast<std::size_t>(argc > 1 ? std::atol(argv[1]) : 100);
  const std::size_t length = 1000 * static_cast<std::size_t>(argc > 2 ? std::atol(argv[2]) : 2000);
  std::printf("| %zu records |", records);
  for (const std::string_view name : hako::traces::kNames) std::printf(" %.*s |", static_cast<int>(name.size()), name.data());
  std::printf("\n|---|---|---|---|---|---|\n");
  for (const Named& policy : kPolicies) {
    std::printf("| %s |", policy.name);
    for (const std::string_view name : hako::traces::kNames) {
      const hako::traces::Trace trace = hako::traces::Make(name, records, length);
      const auto cache = policy.make(records);
      std::size_t hits = 0;
      for (const Key key : trace) hits += cache->Request(key) ? 1 : 0;
      std::printf(" %.2f |", 100. * static_cast<double>(hits) / static_cast<double>(trace.size()));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}
