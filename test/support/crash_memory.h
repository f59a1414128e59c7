// Memory that can lose power: the live bytes of a file, as its process sees them, and the states
// that the device may have.
//
// Every 512-byte sector written since its last sync may have any of its versions on the device,
// independently of the others: the synced one, the latest, or one in between. So may the file's
// size. Once anything of the file was synced, a sector that was not may also contain garbage:
// random bytes or, if the file was truncated and grew again without a sync since, its old content.
// SyncRange makes only its range durable. Crash() draws one such state of the device; Live() is the
// file that a killed process leaves.
//
// MappedCrashFile lets an engine store into the live bytes, with a boot id (booted_memory_file.h);
// versions are recorded at Observe() and at each sync. PositionalCrashFile records each write.
// `on_event` runs before a sync, a write or a change of size takes effect: the moment to draw a
// crash within it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/memory_file.h"
#include "support/booted_memory_file.h"
#include "support/random.h"

namespace hako {

class CrashMemory {
 public:
  using Image = std::vector<std::byte>;
  static constexpr std::uint64_t kSectorSize = 512;

  // `start` is on the device already.
  CrashMemory(Image start, std::uint8_t boot)
      : boot_(boot), live_(std::uint64_t{1} << 30), seen_(start), durable_(std::move(start)), sizes_{seen_.size()} {
    (void)live_.Resize(seen_.size());
    (void)live_.WriteAt(0, seen_);
  }

  // The memory that the next process finds if this one is killed now: the whole page cache, and the
  // possible versions on the device.
  std::shared_ptr<CrashMemory> Kill() {
    std::lock_guard lock(mutex_);
    Look(0, seen_.size());
    auto next = std::make_shared<CrashMemory>(seen_, boot_);
    next->durable_ = durable_;
    next->versions_ = versions_;
    next->never_synced_ = never_synced_;
    next->lost_ = lost_;
    next->sizes_ = sizes_;
    return next;
  }

  std::function<void()> on_event = [] {};

  // A write: its sectors reach the device with the next sync even if it changed nothing in them,
  // because after a failed sync the device may lack them.
  Status Write(std::uint64_t offset, std::span<const std::byte> in) {
    HAKO_RETURN_IF_ERROR(live_.WriteAt(offset, in));
    std::lock_guard lock(mutex_);
    Look(offset, in.size());
    for (std::uint64_t sector = offset / kSectorSize; sector * kSectorSize < offset + in.size(); ++sector) {
      const std::uint64_t at = sector * kSectorSize;
      if (versions_.count(sector) != 0 || at + kSectorSize > seen_.size()) continue;
      if (at + kSectorSize <= durable_.size() && std::memcmp(durable_.data() + at, seen_.data() + at, kSectorSize) == 0) continue;
      if (at >= durable_.size()) never_synced_.insert(sector);
      versions_[sector].push_back(SectorOf(seen_, sector));
    }
    return absl::OkStatus();
  }

  MemoryFile& live() { return live_; }
  std::uint8_t boot() const { return boot_; }

  // Records the stores since the last call.
  void Observe() {
    std::lock_guard lock(mutex_);
    Look(0, seen_.size());
  }
  void Observe(std::uint64_t offset, std::uint64_t size) {
    std::lock_guard lock(mutex_);
    Look(offset, size);
  }

  Status Resize(std::uint64_t size) {
    on_event();
    std::lock_guard lock(mutex_);
    Look(0, seen_.size());
    HAKO_RETURN_IF_ERROR(live_.Resize(size));
    for (std::uint64_t at = size / kSectorSize * kSectorSize; size < seen_.size() && at < seen_.size();
         at += kSectorSize) {  // truncated bytes read as zero
      std::fill(seen_.begin() + static_cast<std::ptrdiff_t>(std::max(at, size)),
                seen_.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(at + kSectorSize, seen_.size())), std::byte{0});
      versions_[at / kSectorSize].push_back(SectorOf(seen_, at / kSectorSize));
    }
    seen_.resize(size);
    sizes_.push_back(size);
    return absl::OkStatus();
  }

  // The n-th sync from now fails, and its data never reaches the device unless it is stored again:
  // the kernel takes it for written.
  void FailSync(int n) { syncs_to_failure_ = n; }
  bool HasFailed() const { return syncs_to_failure_ == 0; }

  Status Sync(std::uint64_t offset, std::uint64_t size) {
    on_event();
    std::lock_guard lock(mutex_);
    Look(0, seen_.size());
    const std::uint64_t begin = offset / kSectorSize, end = (offset + size + kSectorSize - 1) / kSectorSize;
    const bool fails = syncs_to_failure_ > 0 && --syncs_to_failure_ == 0;
    if (!fails) {
      ForgetOldSizes();
      lost_.erase(lost_.lower_bound(begin), lost_.lower_bound(end));
    }
    for (auto it = versions_.lower_bound(begin); it != versions_.end() && it->first < end; it = versions_.erase(it)) {
      if (fails) continue;
      const std::uint64_t at = it->first * kSectorSize;
      if (durable_.size() < at + kSectorSize) durable_.resize(at + kSectorSize);
      std::ranges::copy(it->second.back(), durable_.begin() + static_cast<std::ptrdiff_t>(at));
      never_synced_.erase(it->first);
    }
    return fails ? absl::UnknownError("injected fault") : absl::OkStatus();
  }

  // The content of the page cache: the file after a process kill now.
  Image Live() {
    std::lock_guard lock(mutex_);
    Look(0, seen_.size());
    return seen_;
  }

  // Calls f(const Image&) for states that the device may have after a power cut now: all of them if
  // there are at most `most`, else the synced and the newest one, each sector alone new or alone
  // old, each cut between new and old sectors, and random ones, `most` in all or a few more.
  template <class F>
  void ForEachCrash(Random& random, std::size_t most, F&& f) {
    Observe();
    const std::map<std::uint64_t, std::vector<Sector>> versions = versions_;
    const std::vector<std::uint64_t> sizes = sizes_;
    std::vector<std::size_t> counts = {sizes.size()};  // of the versions of the size, then of each sector
    for (const auto& [sector, of_sector] : versions) counts.push_back(of_sector.size() + 1);
    ForEachChoice(random, most, counts, [&](const std::vector<std::size_t>& choice) {
      Image image = durable_;
      image.resize(sizes[choice[0]]);
      const std::size_t* chosen = choice.data() + 1;
      for (const auto& [sector, of_sector] : versions) {
        const std::uint64_t at = sector * kSectorSize;
        if (const std::size_t n = *chosen++; n != 0 && at < image.size()) {
          std::copy_n(of_sector[n - 1].begin(), std::min<std::uint64_t>(kSectorSize, image.size() - at),
                      image.begin() + static_cast<std::ptrdiff_t>(at));
        }
      }
      f(image);
    });
  }

  // How many sectors a power cut now may leave in an older version.
  std::size_t NumUnsynced() {
    std::lock_guard lock(mutex_);
    Look(0, seen_.size());
    return versions_.size();
  }

  // A state that the device may have after a power cut now.
  Image Crash(Random& random) {
    enum Style { kNothingNew, kEverythingNew, kAnything, kLittleNew, kLittleOld, kPrefix, kGarbage, kStyles };
    const auto style = static_cast<Style>(random.Below(kStyles));
    std::lock_guard lock(mutex_);
    Look(0, seen_.size());
    const auto choose = [&](std::size_t n) -> std::size_t {  // of the versions 0 (synced) to n - 1 (latest)
      switch (style) {
        case kNothingNew:
          return 0;
        case kEverythingNew:
          return n - 1;
        case kLittleNew:
          return random.OneIn(8) ? random.Below(n) : 0;
        case kLittleOld:
          return random.OneIn(8) ? random.Below(n) : n - 1;
        default:
          return random.Below(n);
      }
    };
    Image image = durable_;
    image.resize(sizes_[choose(sizes_.size())]);
    const std::uint64_t cut = style == kPrefix && !versions_.empty() ? random.Below(versions_.rbegin()->first + 2) : 0;
    for (const auto& [sector, versions] : versions_) {
      const std::uint64_t at = sector * kSectorSize;
      if (at >= image.size()) continue;
      const std::size_t chosen = style == kPrefix ? (sector < cut ? versions.size() : 0) : choose(versions.size() + 1);
      Sector bytes = chosen == 0 ? SectorOf(durable_, sector) : versions[chosen - 1];
      if (style == kGarbage && !durable_.empty() && never_synced_.count(sector) != 0 && random.OneIn(2)) {
        const auto lost = lost_.find(sector);
        if (lost != lost_.end() && random.OneIn(2)) {
          bytes = lost->second;
        } else {
          for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next() >> 56);
        }
      }
      std::copy_n(bytes.begin(), std::min<std::uint64_t>(kSectorSize, image.size() - at), image.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return image;
  }

 private:
  using Sector = std::array<std::byte, kSectorSize>;

  static Sector SectorOf(const Image& image, std::uint64_t sector) {
    Sector bytes{};
    const std::uint64_t begin = std::min<std::uint64_t>(sector * kSectorSize, image.size());
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(begin), std::min<std::uint64_t>(kSectorSize, image.size() - begin),
                bytes.begin());
    return bytes;
  }

  template <class F>
  static void ForEachChoice(Random& random, std::size_t most, const std::vector<std::size_t>& counts, F&& f) {
    std::size_t product = 1;
    for (const std::size_t n : counts) product = std::min(product * n, most + 1);
    std::vector<std::size_t> choice(counts.size());
    if (product <= most) {
      for (std::size_t number = 0; number < product; ++number) {
        for (std::size_t i = 0, rest = number; i < counts.size(); rest /= counts[i++]) choice[i] = rest % counts[i];
        f(choice);
      }
      return;
    }
    const std::size_t step = 1 + 3 * counts.size() / most;
    for (std::size_t i = 0; i <= counts.size(); i += step) {
      for (const int shape : {0, 1, 2}) {  // new: only the i-th; all others; those before it
        for (std::size_t k = 0; k < counts.size(); ++k) choice[k] = (shape == 0 ? k == i : shape == 1 ? k != i : k < i) ? counts[k] - 1 : 0;
        f(choice);
      }
    }
    for (std::size_t n = 3 * counts.size() / step; n < most; ++n) {
      for (std::size_t k = 0; k < counts.size(); ++k) choice[k] = random.Below(counts[k]);
      f(choice);
    }
  }

  // The size is durable now. Truncated bytes are lost: if the file grows again, their sectors count
  // as never synced.
  void ForgetOldSizes() {
    sizes_ = {seen_.size()};
    const std::uint64_t end = (seen_.size() + kSectorSize - 1) / kSectorSize;
    for (std::uint64_t sector = end; sector * kSectorSize < durable_.size(); ++sector) lost_[sector] = SectorOf(durable_, sector);
    durable_.resize(std::min<std::uint64_t>(durable_.size(), end * kSectorSize));
    versions_.erase(versions_.lower_bound(end), versions_.end());
    never_synced_.erase(never_synced_.lower_bound(end), never_synced_.end());
  }

  void Look(std::uint64_t offset, std::uint64_t size) {
    constexpr std::uint64_t kPage = 4096;
    const std::byte* live = live_.View(0, seen_.size()).data();
    const std::uint64_t end = std::min<std::uint64_t>(offset + size, seen_.size());
    for (std::uint64_t page = offset / kPage * kPage; page < end; page += kPage) {
      const std::uint64_t page_end = std::min<std::uint64_t>(page + kPage, seen_.size());
      if (std::memcmp(live + page, seen_.data() + page, page_end - page) == 0) continue;
      for (std::uint64_t at = page; at < page_end; at += kSectorSize) {
        const std::uint64_t length = std::min(kSectorSize, page_end - at);
        if (std::memcmp(live + at, seen_.data() + at, length) == 0) continue;
        std::memcpy(seen_.data() + at, live + at, length);
        const std::uint64_t sector = at / kSectorSize;
        if (at >= durable_.size()) never_synced_.insert(sector);
        versions_[sector].push_back(SectorOf(seen_, sector));
      }
    }
  }

  const std::uint8_t boot_;
  std::mutex mutex_;
  MemoryFile live_;
  Image seen_;                                             // the live bytes at the last look
  Image durable_;                                          // each sector as it was last synced
  std::map<std::uint64_t, std::vector<Sector>> versions_;  // by sector: its versions since, oldest first
  std::set<std::uint64_t> never_synced_;
  std::map<std::uint64_t, Sector> lost_;  // sectors that the file was cut to lose, durably, and that were not synced since
  int syncs_to_failure_ = -1;             // -1: no failure
  std::vector<std::uint64_t> sizes_;      // of the file since the last sync, the durable one first
};

class MappedCrashFile {
 public:
  explicit MappedCrashFile(std::shared_ptr<CrashMemory> memory) : memory_(std::move(memory)) {}
  std::uint64_t Size() const { return memory_->live().Size(); }
  bool IsWritable() const { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const { return memory_->live().ReadAt(offset, out); }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) { return memory_->Write(offset, in); }
  std::span<const std::byte> View(std::uint64_t offset, std::size_t size) const { return memory_->live().View(offset, size); }
  std::span<std::byte> MutableView(std::uint64_t offset, std::size_t size) { return memory_->live().MutableView(offset, size); }
  Status Resize(std::uint64_t size) { return memory_->Resize(size); }
  Status Sync() { return SyncRange(0, Size()); }
  Status SyncRange(std::uint64_t offset, std::size_t size) { return memory_->Sync(offset, size); }
  FileIdentity Identity() const { return IdentityOfBoot(memory_->boot()); }
  Status Close() { return absl::OkStatus(); }

 private:
  std::shared_ptr<CrashMemory> memory_;
};

class PositionalCrashFile {
 public:
  explicit PositionalCrashFile(std::shared_ptr<CrashMemory> memory) : memory_(std::move(memory)) {}
  std::uint64_t Size() const { return memory_->live().Size(); }
  bool IsWritable() const { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const { return memory_->live().ReadAt(offset, out); }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    memory_->on_event();
    return memory_->Write(offset, in);
  }
  Status Resize(std::uint64_t size) { return memory_->Resize(size); }
  Status Sync() { return memory_->Sync(0, Size()); }
  Status Close() { return absl::OkStatus(); }

 private:
  std::shared_ptr<CrashMemory> memory_;
};

static_assert(MappedFile<MappedCrashFile> && KernelBackedFile<MappedCrashFile>);
static_assert(File<PositionalCrashFile> && !MappedFile<PositionalCrashFile>);

}  // namespace hako
