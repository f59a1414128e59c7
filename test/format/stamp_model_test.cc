// Proves on a tiny model of a file that stamps restore exactly the records of the state that the
// superblock names: for every sequence of births, retirements, steps of a synchronization, process
// kills and power cuts up to some length, and for every combination of unsynced stamps on the
// device.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hako/format/stamp.h"

namespace hako::format {
namespace {

using StampRule = Stamp (*)(Stamp, Epochs);

// The content of a block: a record and its stamp. Record 0: none that validates.
struct Content {
  int record = 0;
  Stamp stamp;
};

enum class Use { kFree, kNamed, kWaiting };

struct Block {
  std::vector<Content> versions = {{}};  // since the last sync; any may be on the device, the last is in the page cache
  Use use = Use::kFree;
  std::uint64_t waits_since = 0;  // the epoch in which it was retired

  const Content& now() const { return versions.back(); }
  void Write(int record, Stamp stamp) { versions.push_back({record, stamp}); }
  void Restamp(Stamp stamp) { Write(now().record, stamp); }
};

struct World {
  std::vector<Block> blocks = std::vector<Block>(3);
  Epochs epochs = {1, 2};
  std::set<std::uint64_t> on_device = {1};  // the epochs that the device's superblock may name
  std::uint64_t in_buffer_pool = 1;         // the one that the page cache's names
  std::uint64_t closed = 0;                 // the epoch that is being synchronized, 0 = none
  int sync_step = 0;
  std::map<std::uint64_t, std::set<int>> states = {{1, {}}};  // by epoch
  int next_record = 1;
  std::string path;  // what has happened

  void SyncContent() {
    for (Block& block : blocks) block.versions = {block.now()};
  }
  std::set<int> Named() const {
    std::set<int> named;
    for (const Block& block : blocks) {
      if (block.use == Use::kNamed) named.insert(block.now().record);
    }
    return named;
  }
};

class Model {
 public:
  explicit Model(StampRule retire) : retire_(retire) {}

  // The first sequence of at most `depth` steps after which a power cut restores another state; ""
  // if there is none.
  std::string FindViolation(int depth) {
    std::vector<World> level = {World()};
    std::set<std::string> seen;
    for (int step = 0; step <= depth; ++step) {
      std::vector<World> next;
      for (const World& world : level) {
        ++num_worlds_;
        if (!CheckPowerCut(world)) return world.path;
        if (step == depth) continue;
        for (World& after : StepsFrom(world)) {
          if (seen.insert(KeyOf(after)).second) next.push_back(std::move(after));
        }
      }
      level = std::move(next);
    }
    return "";
  }
  int num_worlds() const { return num_worlds_; }

 private:
  static std::string KeyOf(const World& world) {
    std::string key;
    const auto add = [&key](std::uint64_t number) { key += std::to_string(number) + ","; };
    for (const Block& block : world.blocks) {
      for (const Content& content : block.versions) add(static_cast<std::uint64_t>(content.record)), add(content.stamp.bits());
      key += "/";
      add(static_cast<std::uint64_t>(block.use)), add(block.waits_since);
    }
    add(world.epochs.durable), add(world.epochs.now), add(world.in_buffer_pool), add(world.closed);
    add(static_cast<std::uint64_t>(world.sync_step));
    for (const std::uint64_t s : world.on_device) {
      add(s);
      for (const int record : world.states.at(s)) add(static_cast<std::uint64_t>(record));
    }
    if (world.closed != 0) {
      for (const int record : world.states.at(world.closed)) add(static_cast<std::uint64_t>(record));
    }
    return key;
  }

  // Calls check(s, the versions' indices) for each state that the device may have.
  template <class F>
  static bool ForEachImage(const World& world, F&& check) {
    std::vector<std::size_t> chosen(world.blocks.size(), 0);
    for (;;) {
      for (const std::uint64_t s : world.on_device) {
        if (!check(s, chosen)) return false;
      }
      std::size_t i = 0;
      while (i < chosen.size() && ++chosen[i] == world.blocks[i].versions.size()) chosen[i++] = 0;
      if (i == chosen.size()) return true;
    }
  }

  static bool CheckPowerCut(const World& world) {
    return ForEachImage(world, [&](std::uint64_t s, const std::vector<std::size_t>& chosen) {
      std::set<int> found;
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        const Content& content = world.blocks[i].versions[chosen[i]];
        if (content.record != 0 && content.stamp.BelongsTo(s)) found.insert(content.record);
      }
      return found == world.states.at(s);
    });
  }

  std::vector<World> StepsFrom(const World& world) const {
    std::vector<World> after;
    const auto step = [&](const std::string& name, auto&& change) {
      after.push_back(world);
      after.back().path += name + " ";
      change(after.back());
    };
    if (world.Named().size() < world.blocks.size()) step("birth", [&](World& w) { Birth(w, true); });
    for (std::size_t i = 0; i < world.blocks.size(); ++i) {
      if (world.blocks[i].use == Use::kNamed) step("retire", [&, i](World& w) { RetireBlock(w, i, true); });
    }
    step("sync", [&](World& w) { StepOfSync(w); });
    step("kill", [&](World& w) { Kill(w); });
    step("kill-before-commit", [&](World& w) {
      Birth(w, false);
      Kill(w);
    });
    for (std::size_t i = 0; i < world.blocks.size(); ++i) {
      if (world.blocks[i].use != Use::kNamed) continue;
      step("kill-after-retire", [&, i](World& w) {
        RetireBlock(w, i, false);
        Kill(w);
      });
    }
    for (const bool newest : {false, true}) step("power-cut", [&](World& w) { PowerCut(w, newest); });
    return after;
  }

  // A record goes into a free block, which may be torn meanwhile; its entry is published, then it
  // becomes live.
  void Birth(World& w, bool commits) const {
    for (Block& block : w.blocks) {
      if (block.use != Use::kFree) continue;
      const Stamp unborn = Stamp::Of(BlockState::kUnborn, w.epochs.now);
      block.Write(0, unborn);
      block.Write(w.next_record++, unborn);
      block.use = Use::kNamed;
      if (commits) block.Restamp(Stamp::Of(BlockState::kLive, w.epochs.now));
      return;
    }
  }

  void RetireBlock(World& w, std::size_t i, bool unnames) const {
    Block& block = w.blocks[i];
    block.Restamp(retire_(block.now().stamp, w.epochs));
    if (!unnames) return;
    block.use = block.now().stamp.state() == BlockState::kFree ? Use::kFree : Use::kWaiting;
    block.waits_since = w.epochs.now;
  }

  static void StepOfSync(World& w) {
    switch (w.sync_step) {
      case 0:  // the epoch is closed
        w.closed = w.epochs.now++;
        w.states[w.closed] = w.Named();
        break;
      case 1:  // its content is synced
        w.SyncContent();
        break;
      case 2:  // the superblock is written
        w.in_buffer_pool = w.closed;
        w.on_device.insert(w.closed);
        break;
      case 3:  // and synced
        w.SyncContent();
        w.on_device = {w.closed};
        break;
      case 4:  // the process knows, and releases what waited for it
        w.epochs.durable = w.closed;
        for (Block& block : w.blocks) {
          if (block.use != Use::kWaiting || block.waits_since > w.closed) continue;
          block.use = Use::kFree;
          block.Restamp(Stamp::Of(BlockState::kFree, w.epochs.now));
        }
        w.closed = 0;
    }
    w.sync_step = (w.sync_step + 1) % 5;
  }

  // The process is killed and another opens the file: it makes the superblock's epoch durable, then
  // revives records that entries name and takes over free blocks.
  static void Kill(World& w) {
    w.SyncContent();
    w.on_device = {w.in_buffer_pool};
    w.closed = 0;
    w.sync_step = 0;
    w.epochs = {w.in_buffer_pool, w.epochs.now + 1};
    for (Block& block : w.blocks) {
      const Stamp stamp = block.now().stamp;
      if (block.use == Use::kNamed) {
        if (!stamp.IsLive()) block.Restamp(Revive(stamp, w.epochs));
        continue;
      }
      if (!stamp.IsValid()) continue;  // never written
      switch (LeftoverOf(stamp, w.epochs.now)) {
        case Leftover::kFree:
          block.use = Use::kFree;
          block.Restamp(Stamp::Of(BlockState::kFree, w.epochs.now));
          break;
        case Leftover::kWaiting:
          block.use = Use::kWaiting;
          block.waits_since = w.epochs.now;
          break;
        case Leftover::kNone:
          ADD_FAILURE() << "an unnamed block is not free: " << w.path;
      }
    }
  }

  // The device has the oldest or the newest version of everything; recovery rewrites all stamps.
  static void PowerCut(World& w, bool newest) {
    const std::uint64_t s = newest ? *w.on_device.rbegin() : *w.on_device.begin();
    w.epochs = {s, s + 1};
    w.on_device = {s};
    w.in_buffer_pool = s;
    w.closed = 0;
    w.sync_step = 0;
    for (Block& block : w.blocks) {
      block.versions = {newest ? block.versions.back() : block.versions.front()};
      const Content found = block.now();
      const bool kept = found.record != 0 && found.stamp.BelongsTo(s);
      block.use = kept ? Use::kNamed : Use::kFree;
      if (kept && !found.stamp.IsLive()) block.Restamp(Revive(found.stamp, w.epochs));
      if (!kept && found.record != 0) block.Restamp(Stamp::Of(BlockState::kFree, w.epochs.now));
    }
  }

  const StampRule retire_;
  int num_worlds_ = 0;
};

TEST(StampModelTest, EveryPowerCutRestoresExactlyTheSyncedState) {
  Model model(Retire);
  EXPECT_EQ(model.FindViolation(6), "");
  EXPECT_GT(model.num_worlds(), 10'000);
}

// The model detects a seeded defect: if only records of the previous epoch count as young, a state
// that never had the record keeps it.
TEST(StampModelTest, ModelFindsASeededDefect) {
  Model model([](Stamp stamp, Epochs epochs) {
    const bool young = !stamp.IsAncient() && stamp.AgeAt(epochs.now) == 1;
    return young ? Stamp::Of(BlockState::kYoungRetired, epochs.now) : Retire(stamp, {epochs.now, epochs.now});
  });
  EXPECT_EQ(model.FindViolation(6), "birth sync kill retire ");
}

}  // namespace
}  // namespace hako::format
