// A bucket index over the toy space, and a std::map that it must equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/dbm.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/bucket_verify.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/toy_record_space.h"

namespace hako {

template <class Space>
class ToyTable {
 public:
  using Index = hash::BucketIndex<Space>;
  using Model = std::map<std::string, std::string, std::less<>>;

  explicit ToyTable(std::uint64_t max_lines = 16 << 10, std::uint64_t num_records = 0) : space(max_lines), index(space) {
    EXPECT_THAT(index.Create(num_records), IsOk());
  }
  using OnChange = std::function<void(const typename Space::Content&)>;
  // Takes over what a process left when it was killed. Calls on_change before and after each change
  // that it makes to the space.
  explicit ToyTable(typename Space::Content content, std::uint64_t hash_mask, const OnChange& on_change = {})
      : space(std::move(content)), index(space) {
    space.hash_mask = hash_mask;
    if (on_change) space.on_change = [&] { on_change(space.content()); };
    std::vector<typename Space::Extent> overflow;
    for (const auto& extent : space.content().extents) {
      if (extent.kind == hash::IndexExtent::kOverflowLines) {
        overflow.push_back(extent);
      } else {
        EXPECT_TRUE(index.lines().AdoptHome(extent.offset, extent.bytes));
      }
    }
    hash::OverflowIds used;
    EXPECT_THAT(index.Recover(*writers.Mine(), space.content().line_count, &used), IsOk());
    for (const auto& extent : overflow) index.lines().AdoptOverflow(extent.offset, extent.bytes, used);
    while (!space.content().intents.empty()) {
      const unsigned word = space.content().intents.begin()->first;
      EXPECT_THAT(index.Redo(*writers.Mine(), space.LoadIntent(word)), IsOk());
      space.EndIntent(word);
    }
    space.on_change = nullptr;
    space.DropAllBut(NamedHandles());
  }

  Status Set(std::string_view key, std::string_view value) { return Process(key, Action::Set(value)); }
  Status Remove(std::string_view key) { return Process(key, Action::Remove()); }
  template <class V>
  Status Process(std::string_view key, V&& visit) {
    return index.template Process<Action>(*writers.Mine(), space.KeyHash(key), key, visit);
  }
  StatusOr<std::string> Get(std::string_view key) {
    std::string value;
    const auto sink = [&value](std::size_t size) {
      value.resize(size);
      return value.data();
    };
    HAKO_RETURN_IF_ERROR(index.Fetch(writers, space.KeyHash(key), key, sink));
    return value;
  }
  Model All() {
    Model all;
    const auto visit = [&all](std::string_view key, std::string_view value) { EXPECT_TRUE(all.emplace(key, value).second) << key; };
    EXPECT_THAT(index.ForEach(visit), IsOk());
    return all;
  }
  std::unordered_set<std::uint32_t> NamedHandles() {
    std::unordered_set<std::uint32_t> named;
    EXPECT_THAT(index.ForEachLocked(*writers.Mine(), 0, index.num_lines(),
                                    [&named](std::uint32_t handle, auto&&) {
                                      EXPECT_TRUE(named.insert(handle).second) << handle;
                                      return absl::OkStatus();
                                    }),
                IsOk());
    return named;
  }
  std::uint64_t Count() {
    return index.Count([this](auto&& visit) { writers.ForEach(visit); });
  }
  // Makes the index believe that it has this many records more, so that it splits buckets that have
  // few.
  void PretendMore(std::uint64_t records) {
    auto& pending = writers.Mine()->pending_count;
    pending.store(pending.load() + static_cast<std::int64_t>(records));
    pretended += records;
  }

  template <class Body>
  auto RunExclusive(Body&& body) {
    return space.gate().RunExclusive([this](auto&& visit) { writers.ForEach(visit); }, body);
  }

  void ExpectEqual(const Model& model) {
    space.ExpectAllLive();
    EXPECT_EQ(space.num_records(), model.size());
    EXPECT_EQ(Count(), model.size() + pretended);
    std::uint64_t twins = 0;
    const auto count_twin = [&twins](std::uint32_t, std::uint32_t) { ++twins; };
    EXPECT_THAT(RunExclusive([&] { return hash::VerifyLines(index.lines(), model.size(), count_twin); }), IsOk());
    EXPECT_THAT(hash::VerifyRecords(index, *writers.Mine()), IsOk());
    for (std::uint64_t i = 0; i < index.num_lines(); ++i) {
      const format::BucketLine& line = index.lines().Home(i);
      for (unsigned e = 0; e < format::kLinkEntry; ++e) EXPECT_TRUE(line.slots[e] != 0 || line.tags[e] == 0) << "an empty entry is lost";
    }
    EXPECT_EQ(All(), model);
  }

  Space space;
  Index index;
  mutable sync::WriterStates<typename Space::WriterState> writers;
  std::uint64_t pretended = 0;
};

}  // namespace hako
