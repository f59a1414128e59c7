// The free runs of a space, beside a bool for each byte.
#include "hako/hash/free/free_runs.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "support/random.h"
#include "support/sanitizers.h"

namespace hako::hash {
namespace {

constexpr std::uint64_t kSpace = 400;

class Model {
 public:
  using Runs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  Runs All() const {
    Runs runs;
    for (std::uint64_t at = 0; at < kSpace;) {
      const std::uint64_t begin = at;
      while (at < kSpace && free_[at] == free_[begin]) ++at;
      if (free_[begin]) runs.emplace_back(begin, at);
    }
    return runs;
  }
  bool IsUsed(hash::Run run) const {
    return std::none_of(At(run.begin), At(run.end), [](bool is_free) { return is_free; });
  }
  std::uint64_t Fill(hash::Run run, bool is_free) {  // returns how many bytes changed
    std::uint64_t changed = 0;
    for (std::uint64_t i = run.begin; i < run.end; ++i) changed += std::exchange(free_[i], is_free) != is_free ? 1u : 0u;
    return changed;
  }

 private:
  std::vector<char>::const_iterator At(std::uint64_t i) const { return free_.begin() + static_cast<std::ptrdiff_t>(i); }
  std::vector<char> free_ = std::vector<char>(kSpace, 0);
};

TEST(FreeRunsTest, AgreesWithAModel) {
  Random random(TestSeed());
  FreeRuns runs;
  Model model;
  for (int i = 0; i < 20'000 / kSlowdown; ++i) {
    const std::uint64_t begin = random.Below(kSpace), bytes = std::min(random.SkewedSize(6) + 1, kSpace - begin);
    const hash::Run range{begin, begin + bytes};
    if (random.OneIn(2)) {
      if (!model.IsUsed(range)) continue;
      const hash::Run joined = runs.Add(range);
      model.Fill(range, true);
      const auto all = model.All();
      ASSERT_NE(std::find(all.begin(), all.end(), std::pair(joined.begin, joined.end)), all.end());
    } else {
      std::uint64_t cut = 0, last = range.begin;
      runs.Cut(range, [&](hash::Run piece) {
        ASSERT_TRUE(piece.begin >= last && piece.begin < piece.end && piece.end <= range.end);
        last = piece.end;
        cut += piece.bytes();
      });
      ASSERT_EQ(cut, model.Fill(range, false));
    }
    const Model::Runs all = model.All();
    Model::Runs found;
    runs.ForEach([&found](hash::Run run) { found.emplace_back(run.begin, run.end); });
    ASSERT_EQ(found, all);
    const std::uint64_t wanted = random.SkewedSize(7) + 1;
    const auto first = std::find_if(all.begin(), all.end(), [wanted](const auto& run) { return run.second - run.first >= wanted; });
    ASSERT_EQ(runs.Find(wanted).begin, first == all.end() ? 0 : first->first);
    ASSERT_EQ(runs.Find(wanted).bytes(), first == all.end() ? 0 : first->second - first->first);
    const std::uint64_t place = random.Below(kSpace);
    const auto at = std::find_if(all.begin(), all.end(), [place](const auto& run) { return run.first == place; });
    ASSERT_EQ(runs.At(place).bytes(), at == all.end() ? 0 : at->second - at->first);
  }
}

}  // namespace
}  // namespace hako::hash
