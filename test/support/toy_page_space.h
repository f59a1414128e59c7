// A PageSpace that is too simple to be wrong: its free units, ids and long values are in std::map
// and std::set. The page tree is tested on it alone, without an arena, a buffer pool or a file.
//
// It has exactly what the concept asks for, so a tree that compiles with it uses nothing else. It
// checks the calls: nothing is freed twice, pages are locked where they must be and nowhere else,
// and MarkDirty was called for each page that has changed. Freed memory is overwritten. Calls fail
// on request. If it is not resident, it evicts leaves at every opportunity.
//
// One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/sync/version_lock.h"
#include "hako/tree/page_space.h"
#include "support/random.h"

namespace hako {

template <bool kInMemory>
class ToyPageSpace {
 public:
  using Line = format::PageLine;
  using Shape = format::PageShape;
  struct WriterState : sync::WriterState {
    Status error;
  };
  static constexpr bool kResident = kInMemory;
  static constexpr std::uint32_t kPagesMax = 4096;
  static constexpr std::uint32_t kUnits = 1 << 16;  // 8 MiB

  explicit ToyPageSpace(std::uint64_t seed) : random_(seed), lines_(kPagesMax), memory_(kUnits * format::kPageUnit + 64) {
    free_.emplace(1, kUnits - 1);
    for (std::uint32_t id = 1; id < kPagesMax; ++id) free_ids_.insert(id);
  }
  ToyPageSpace(const ToyPageSpace&) = delete;

  // The call that may fail with this number fails; all later ones too if `refuses_on`.
  std::uint64_t refused = ~std::uint64_t{0};
  bool refuses_on = false;
  std::uint64_t calls = 0;
  // Loads pages while others are locked: for calls that require that there are no writers.
  bool is_alone = false;
  static Status LoadError() { return absl::UnavailableError("the toy cannot load the page"); }

  std::size_t num_pages() const { return pages_.size(); }
  std::size_t num_long() const { return long_values_.size(); }

  // After an operation: no page is locked, each page has its units, and those that have changed
  // were marked.
  void ExpectConsistent() {
    is_promised_ = false;
    std::map<std::uint32_t, std::uint32_t> used;
    for (const std::uint32_t id : pages_) {
      Line& line = lines_[id];
      EXPECT_EQ((line.version & sync::VersionLock::kLocked) != 0, evicted_.contains(id)) << "page " << id << " is locked";
      const bool is_dirty = (line.shape.kind & Shape::kMark) != 0;
      line.shape.kind = static_cast<std::uint8_t>(line.shape.kind & ~Shape::kMark);
      if (!evicted_.contains(id)) used.emplace(line.unit, line.shape.units);
      Image now = ImageOf(id);
      EXPECT_TRUE(is_dirty || now == saved_[id]) << "page " << id << " has changed without notice";
      saved_[id] = std::move(now);
    }
    std::erase_if(saved_, [this](const auto& each) { return !pages_.contains(each.first); });
    EXPECT_EQ(used, used_) << "memory is lost or shared";
  }
  void EvictSome() {
    for (const std::uint32_t id : pages_) {
      if (random_.OneIn(2)) Evict(id);
    }
  }

  sync::WriteGate& gate() { return gate_; }
  std::uint32_t id_mask() const { return kPagesMax - 1; }
  Line* lines() { return lines_.data(); }
  char* memory() { return memory_.data(); }

  std::uint32_t NewPage() {
    if (Refuses() || free_ids_.empty()) return 0;
    const std::uint32_t id = *free_ids_.begin();
    free_ids_.erase(id);
    pages_.insert(id);
    sync::VersionLock(lines_[id].version).Lock();
    return id;
  }
  void FreePage(std::uint32_t id) {
    EXPECT_EQ(pages_.erase(id), 1u) << id;
    EXPECT_TRUE(IsLocked(id)) << id;
    sync::VersionLock(lines_[id].version).Unlock(true);
    free_ids_.insert(id);
  }

  std::uint32_t Allocate(unsigned units) {
    EXPECT_TRUE(units > 0 && units <= format::kPageUnitsMax);
    if (Refuses()) return 0;
    for (const auto& [first, size] : free_) {
      if (size < units) continue;
      const auto [begin, all] = std::pair(first, size);
      free_.erase(begin);
      if (all > units) free_.emplace(begin + units, all - units);
      used_.emplace(begin, units);
      return begin;
    }
    return 0;
  }
  void Free(std::uint32_t first, unsigned units) {
    const auto it = used_.find(first);
    if (it == used_.end() || it->second != units) {
      ADD_FAILURE() << units << " units at " << first << " are freed and were not allocated";
      return;
    }
    used_.erase(it);
    std::memset(At(first), 0xdd, std::size_t{units} * format::kPageUnit);
    auto run = free_.emplace(first, units).first;
    if (const auto next = std::next(run); next != free_.end() && next->first == first + units) {
      run->second += next->second;
      free_.erase(next);
    }
    if (run == free_.begin()) return;
    if (const auto before = std::prev(run); before->first + before->second == first) {
      before->second += run->second;
      free_.erase(run);
    }
  }
  // After a promise nothing is refused in this operation.
  bool HasRoomFor(std::uint64_t) { return is_promised_ = !Refuses(); }

  void MarkDirty(Line& line) {
    EXPECT_TRUE(IsLocked(IdOf(line)));
    if ((line.shape.kind & Shape::kMark) != 0) return;
    if (Refuses()) throw std::bad_alloc();
    line.shape.kind |= mark();
  }
  std::uint8_t mark() { return 0x20; }

  // Long values: by place, which is never used again.
  struct LongValue {
    std::string bytes;
    bool is_filled = false;
  };
  using LongPointer = std::shared_ptr<LongValue>;
  class Deferred {
   public:
    explicit Deferred(ToyPageSpace& space) : space_(space) {}
    Deferred(const Deferred&) = delete;
    ~Deferred() { Finish(); }
    void Finish() {
      if (!filled_.empty()) space_.ExpectNothingLocked();
      for (const auto& [value, bytes] : filled_) *value = {std::string(bytes), true};
      filled_.clear();
    }

   private:
    friend ToyPageSpace;
    ToyPageSpace& space_;
    std::vector<std::pair<LongPointer, std::string_view>> filled_;
  };
  bool has_long_values() { return !long_values_.empty(); }
  std::uint64_t StoreLong(std::string_view value, Deferred& deferred) {
    if (Refuses()) return 0;
    const LongPointer& stored = long_values_[++last_place_] = std::make_shared<LongValue>();
    deferred.filled_.emplace_back(stored, value);
    return last_place_;
  }
  void FreeLong(const format::OverflowValue& value, Deferred&) { EXPECT_EQ(long_values_.erase(value.place), 1u) << value.place; }

  // In memory a value is shared at once; else Has names it and Read reads it.
  class LongRead {
   public:
    explicit LongRead(ToyPageSpace& space) : space_(&space) {}
    bool Has(const format::OverflowValue& value) {
      if (place_ == value.place) return has_ && value_->is_filled;
      place_ = value.place;
      const auto it = space_->long_values_.find(place_);
      EXPECT_NE(it, space_->long_values_.end()) << place_;
      value_ = it->second;
      has_ = kInMemory;
      return has_ && value_->is_filled;
    }
    bool IsBeingFilled() { return !value_->is_filled; }
    void Read(char* out = nullptr) {
      if (!space_->is_alone) space_->ExpectNothingLocked();
      has_ = true;
      status_ = space_->Refuses() ? LoadError() : absl::OkStatus();
      if (status_.ok() && out != nullptr) value_->bytes.copy(out, value_->bytes.size());
      out_ = out;
    }
    void Check() { Read(); }
    Status status() { return status_; }
    std::string_view bytes() { return out_ != nullptr ? std::string_view(out_, value_->bytes.size()) : value_->bytes; }

   private:
    ToyPageSpace* space_;
    LongPointer value_;
    std::uint64_t place_ = 0;
    bool has_ = false;
    const char* out_ = nullptr;
    Status status_;
  };

  // For pages that are not in memory; a resident toy has none.
  static constexpr bool kReadsAhead = false;
  bool IsEvicted(std::uint32_t id) { return evicted_.contains(id); }
  void NoteChange() {}
  void ReserveDirty(std::size_t) {
    if (Refuses()) throw std::bad_alloc();
    if (is_alone) is_promised_ = true;
  }
  bool MustBeRead(std::uint32_t id) { return evicted_.contains(id); }
  Status LoadPage(std::uint32_t id, int level, bool) {
    if (!is_alone) ExpectNothingLocked();
    const auto it = evicted_.find(id);
    if (it == evicted_.end()) return absl::OkStatus();
    EXPECT_TRUE(level < 0 || static_cast<unsigned>(level) == lines_[id].shape.level());
    const bool was_promised = std::exchange(is_promised_, false);
    const bool fails = !is_alone && Refuses();
    is_promised_ = was_promised;
    if (fails) return LoadError();
    refuses_on = false;  // memory for a page that is loaded is never refused
    const std::uint64_t before = std::exchange(refused, ~std::uint64_t{0});
    const std::uint32_t unit = Allocate(lines_[id].shape.units);
    refused = before;
    lines_[id].unit = unit;
    std::memcpy(At(unit), it->second.data(), it->second.size());
    evicted_.erase(it);
    sync::VersionLock(lines_[id].version).Unlock(true);
    if (!is_alone && random_.OneIn(3)) EvictSomeBut(id);
    return absl::OkStatus();
  }
  void LoadPages(std::span<const std::uint32_t>, int, bool) {}
  void LoadLeaves(std::span<const std::uint32_t>) {}
  bool ReadAhead(std::span<const std::uint32_t>, int) { return true; }
  std::size_t ahead_max() { return 8; }
  void Demote(std::uint32_t id) { Evict(id); }
  bool DiscardEvicted(std::uint32_t id, bool unseen) {
    if (!evicted_.contains(id) || (has_long_values() && !unseen)) return false;
    evicted_.erase(id);
    FreePage(id);
    return true;
  }
  bool NeedsEviction() { return true; }
  void EvictIfNeeded() {
    ExpectNothingLocked();
    EvictSome();
  }
  bool IsLarge(std::size_t num_pages) { return num_pages > 3; }
  class HeldPages {
   public:
    explicit HeldPages(ToyPageSpace& space) : space_(space) { space.ExpectNothingLocked(); }
    HeldPages(const HeldPages&) = delete;
    ~HeldPages() { Release(false); }
    void MakeRoomFor(std::size_t) {}
    bool Add(std::uint32_t id) {
      if (space_.evicted_.contains(id)) return false;
      space_.held_.insert(id);
      return true;
    }
    void Release(bool) { space_.held_.clear(); }

   private:
    ToyPageSpace& space_;
  };

 private:
  using Image = std::pair<std::string, std::string>;  // the line without version and place, and the page

  char* At(std::uint32_t unit) { return memory_.data() + std::size_t{unit} * format::kPageUnit; }
  std::uint32_t IdOf(const Line& line) { return static_cast<std::uint32_t>(&line - lines_.data()); }
  bool IsLocked(std::uint32_t id) { return (lines_[id].version & sync::VersionLock::kLocked) != 0; }
  Image ImageOf(std::uint32_t id) {
    const Line& line = lines_[id];
    std::string head(reinterpret_cast<const char*>(&line.shape), sizeof(Line) - offsetof(Line, shape));
    if (const auto it = evicted_.find(id); it != evicted_.end()) return {std::move(head), it->second};
    return {std::move(head), std::string(At(line.unit), line.shape.size())};
  }
  void ExpectNothingLocked() {
    for (const std::uint32_t id : pages_) EXPECT_TRUE(!IsLocked(id) || evicted_.contains(id)) << "page " << id << " is locked";
  }
  void EvictSomeBut(std::uint32_t kept) {
    for (const std::uint32_t id : pages_) {
      if (id != kept && random_.OneIn(3)) Evict(id);
    }
  }
  void Evict(std::uint32_t id) {
    if (kInMemory) return;
    Line& line = lines_[id];
    if (line.shape.level() != 0 || id == *pages_.begin() || held_.contains(id) || !sync::VersionLock(line.version).TryLock()) return;
    evicted_.emplace(id, std::string(At(line.unit), line.shape.size()));
    Free(line.unit, line.shape.units);
  }
  bool Refuses() {
    const std::uint64_t number = calls++;
    return !is_promised_ && (number == refused || (refuses_on && number > refused));
  }

  Random random_;
  std::vector<Line> lines_;
  std::vector<char> memory_;
  std::map<std::uint32_t, std::uint32_t> free_, used_;  // units by the first
  std::set<std::uint32_t> pages_, free_ids_, held_;
  std::map<std::uint32_t, std::string> evicted_;
  std::map<std::uint32_t, Image> saved_;
  std::map<std::uint64_t, LongPointer> long_values_;
  std::uint64_t last_place_ = 0;
  bool is_promised_ = false;
  sync::WriteGate gate_;
};

static_assert(tree::PageSpace<ToyPageSpace<true>> && tree::PageSpace<ToyPageSpace<false>>);

}  // namespace hako
