// Caches of the same number of records beside each other: TinyDBM and BabyDBM with capacity_records, Kyoto Cabinet's
// CacheDB with cap_count, and an LRU of absl::flat_hash_map and std::list, without a lock. Each request is
// a Get and, if it finds nothing, a Set of 100 bytes. Kyoto Cabinet's GrassDB has no limit.
//   cache_hits [records, in thousands] [requests, in thousands]
// prints a table: hits in percent and nanoseconds a request, for each trace (cache_traces.h).
#include <kccachedb.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "cache_traces.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"

namespace {

template <class D>
class Hako {
 public:
  explicit Hako(std::size_t records) : db_(*D::Open({.capacity_records = records})) {}
  bool Get(std::string_view key, std::string* value) { return db_->Get(key, value).ok(); }
  void Set(std::string_view key, std::string_view value) { (void)db_->Set(key, value); }

 private:
  std::unique_ptr<D> db_;
};

class Kyoto {
 public:
  explicit Kyoto(std::size_t records) {
    db_.cap_count(static_cast<std::int64_t>(records));
    db_.tune_buckets(static_cast<std::int64_t>(2 * records));
    (void)db_.open("*", kyotocabinet::CacheDB::OWRITER | kyotocabinet::CacheDB::OCREATE);
  }
  bool Get(std::string_view key, std::string* value) {
    value->resize(128);
    return db_.get(key.data(), key.size(), value->data(), value->size()) >= 0;
  }
  void Set(std::string_view key, std::string_view value) { (void)db_.set(key.data(), key.size(), value.data(), value.size()); }

 private:
  kyotocabinet::CacheDB db_;
};

class Lru {
 public:
  explicit Lru(std::size_t records) : records_(records) {}
  bool Get(std::string_view key, std::string* value) {
    const auto found = places_.find(absl::string_view(key.data(), key.size()));
    if (found == places_.end()) return false;
    order_.splice(order_.begin(), order_, found->second);
    value->assign(found->second->second);
    return true;
  }
  void Set(std::string_view key, std::string_view value) {
    if (places_.size() == records_) {
      places_.erase(order_.back().first);
      order_.pop_back();
    }
    order_.emplace_front(key, value);
    places_[order_.front().first] = order_.begin();
  }

 private:
  const std::size_t records_;
  std::list<std::pair<std::string, std::string>> order_;
  absl::flat_hash_map<std::string, std::list<std::pair<std::string, std::string>>::iterator> places_;
};

template <class Cache>
void Run(std::size_t records, const hako::traces::Trace& trace) {
  const std::string value(100, 'v');
  std::string found;
  std::size_t hits = 0;
  Cache cache(records);
  const auto start = std::chrono::steady_clock::now();
  for (const std::uint64_t number : trace) {
    const std::uint64_t mixed[2] = {hako::MixBits(number), number};
    const std::string_view key(reinterpret_cast<const char*>(mixed), sizeof(mixed));
    if (cache.Get(key, &found)) {
      ++hits;
    } else {
      cache.Set(key, value);
    }
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  const auto requests = static_cast<double>(trace.size());
  std::printf(" %.2f, %.0f |", 100. * static_cast<double>(hits) / requests, time.count() / requests);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t records = 1000 * static_cast<std::size_t>(argc > 1 ? std::atol(argv[1]) : 100);
  const std::size_t length = 1000 * static_cast<std::size_t>(argc > 2 ? std::atol(argv[2]) : 2000);
  std::printf("| %zu records | TinyDBM | BabyDBM | CacheDB | LRU |\n|---|---|---|---|---|\n", records);
  for (const std::string_view name : hako::traces::kNames) {
    const hako::traces::Trace trace = hako::traces::Make(name, records, length);
    std::printf("| %.*s |", static_cast<int>(name.size()), name.data());
    Run<Hako<hako::TinyDBM<>>>(records, trace);
    Run<Hako<hako::BabyDBM<>>>(records, trace);
    Run<Kyoto>(records, trace);
    Run<Lru>(records, trace);
    std::printf("\n");
  }
}
