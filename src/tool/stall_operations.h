// The maintenance operations beside which "perf --stalls" measures Gets and Sets. Prepare makes
// preparations that are not measured, and Run executes the operation. After each operation the
// records are 0 .. size-1 again, so the operations can run in any order.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/ordered_operations.h"
#include "tool/stall_meter.h"

namespace hako::tool {

struct StallScale {
  std::uint64_t batch_size = 0;  // keys of one ProcessMulti
  std::size_t huge_size = 0;     // bytes of the huge value
  double seconds = 1;            // how long "idle" lasts
  std::string copy_path;         // empty = nothing is copied or saved
};

// "harvest", the recovery after a kill, requires another process and is left to the caller.
inline constexpr std::string_view kHarvest = "harvest";
inline constexpr std::array<std::string_view, 9> kStallOperations = {"idle",   "checkpoint", "synchronize", "verify", "copy",
                                                                     "growth", "rebuild",    "huge",        "batch"};

template <class D>
class StallOperations {
 public:
  static bool Has(std::string_view name) {
    if (name == "checkpoint") return kIsInFile && OrderedDBM<D>;
    if (name == "synchronize" || name == "rebuild") return kIsInFile;
    return std::find(kStallOperations.begin(), kStallOperations.end(), name) != kStallOperations.end();
  }

  StallOperations(D& db, const StallRecords& records, const StallScale& scale) : db_(db), records_(records), scale_(scale) {}

  // Sets the records `from` .. `to`-1.
  Status Fill(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i < to; ++i) HAKO_RETURN_IF_ERROR(SetOne(i));
    return absl::OkStatus();
  }

  Status Prepare(std::string_view name) {
    ++round_;
    if (name == "synchronize") return Fill(0, records_.size());
    if (name != "rebuild") return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(Fill(records_.size(), 2 * records_.size()));
    return RemoveAdded();
  }

  Status Run(std::string_view name) {
    if (name == "idle") {
      std::this_thread::sleep_for(std::chrono::duration<double>(scale_.seconds));
    } else if (name == "checkpoint") {
      return FillUntilCheckpoint();
    } else if (name == "synchronize") {
      return db_.Synchronize(SyncMode::kHard);
    } else if (name == "verify") {
      return db_.Verify();
    } else if (name == "copy") {
      return Copy();
    } else if (name == "growth") {
      return Fill(records_.size(), 2 * records_.size());
    } else if (name == "huge") {
      return SetHuge();
    } else if (name == "batch") {
      return SetBatch();
    } else if (name == "rebuild") {
      if constexpr (kIsInFile) return db_.Rebuild();
    }
    return absl::OkStatus();
  }

  Status CleanUp(std::string_view name) {
    if (name == "growth") return RemoveAdded();
    if (name == "huge") return db_.Remove(kHugeKey);
    std::error_code ignored;
    if (name == "copy" && !scale_.copy_path.empty()) std::filesystem::remove(scale_.copy_path, ignored);
    return absl::OkStatus();
  }

 private:
  static constexpr bool kIsInFile = requires(D & db) { db.Rebuild(); };
  static constexpr std::string_view kHugeKey = "huge";

  Status SetOne(std::uint64_t number) {
    const StallRecords::Key key = StallRecords::KeyOf(number);
    return db_.Set(StallRecords::ViewOf(key), records_.Value(number + round_));
  }
  Status RemoveAdded() {
    for (std::uint64_t i = records_.size(); i < 2 * records_.size(); ++i) {
      const StallRecords::Key key = StallRecords::KeyOf(i);
      HAKO_RETURN_IF_ERROR(db_.Remove(StallRecords::ViewOf(key)));
    }
    return absl::OkStatus();
  }
  // Fills until a checkpoint that dirty pages have started has ended. The number of Sets is
  // bounded, because all pages may fit into memory.
  Status FillUntilCheckpoint() {
    const std::uint64_t epoch = db_.GetStats().epoch;
    for (std::uint64_t i = 0; i < 2 * records_.size() && db_.GetStats().epoch == epoch; ++i) {
      HAKO_RETURN_IF_ERROR(SetOne(i * kStride % records_.size()));
    }
    return absl::OkStatus();
  }
  Status Copy() {
    if (scale_.copy_path.empty()) return absl::OkStatus();
    if constexpr (kIsInFile)
      return db_.CopyTo(scale_.copy_path);
    else
      return db_.Save(scale_.copy_path);
  }
  Status SetHuge() {
    std::string value;
    for (const std::uint64_t seed : {1, 2}) HAKO_RETURN_IF_ERROR(db_.Set(kHugeKey, records_.Value(seed + round_, scale_.huge_size)));
    return db_.Get(kHugeKey, &value);
  }
  // Sets keys at equal distances, so that they lie on as many pages as possible.
  Status SetBatch() {
    const std::uint64_t count = std::clamp<std::uint64_t>(scale_.batch_size, 1, records_.size());
    std::vector<StallRecords::Key> keys(count);
    std::vector<std::string_view> views;
    for (std::uint64_t i = 0; i < count; ++i) {
      keys[i] = StallRecords::KeyOf(records_.size() / count * i);
      views.push_back(StallRecords::ViewOf(keys[i]));
    }
    return db_.ProcessMulti(views, [this](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
      return Action::Set(records_.Value(i + round_));
    });
  }

  static constexpr std::uint64_t kStride = 7919;  // prime: visits every page before any page again
  D& db_;
  const StallRecords& records_;
  const StallScale scale_;
  std::uint64_t round_ = 0;
};

}  // namespace hako::tool
