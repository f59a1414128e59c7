// Records that expire: the time that a database keeps with a record, and its clock.
//
// A database created with the option `expiry` keeps an expiry time with each record that has one.
// From that time on the record is absent: no operation or iterator shows it. Only Count includes it
// until it is removed. Its space is reclaimed later, by a background thread: see
// dbm/expiry_schedule.h.
//
// Times are milliseconds since 1970; 0 means never. The clock is the system's wall clock in the
// form CLOCK_REALTIME_COARSE, which is a few milliseconds behind and costs some loads. A Get or Set
// of a record that never expires does not read the clock.
//
// The clock may be set back or jump ahead.
//   1. While the database is open its time never goes back, so a record that has expired stays
//      absent.
//   2. The time does not stand still for long. If the system's clock was ahead and was set back by
//      a second or more, the time goes on at seven eighths of normal speed, by CLOCK_BOOTTIME,
//      until the system's clock has caught up. Meanwhile a ttl lasts a seventh longer, and a record
//      expires earlier than its expire_at, by the difference of the clocks. This does not apply to
//      a clock given by the option `clock`.
//   3. The file keeps the time. After Close, and after a crash, a record that an operation has reported
//      absent as expired stays absent as far as this table says:
//        Close, hard Synchronize  all records reported before it
//        process kill             those reported 0.1 s or more before, where the table of guarantees in
//                                 the README has every acknowledged operation: a background thread
//                                 stores the time in the log, or in the map. Otherwise those before
//                                 the state that the crash leaves
//        power cut                those reported before the state that the crash leaves; with a
//                                 log, before its last sync
//      If the device is full, the time may not be stored: Close of an unchanged database in memory
//      then leaves the older time in the snapshot.
//   4. Copies by CopyTo, Save, Load and Salvage have the time of their database, and a restored
//      database has the time of its point in the history. So a time that was ahead stays ahead.
//      Export copies records without the time.
//
// Stored form. The engines, the file, the log and snapshots store a value with a tail:
//   never expires   [value][0]
//   expires         [value][time, 7 bytes, little-endian][1]
// "Stored" in the name of a function means that it handles this form.
//
// Databases without the option store values unchanged. A read costs them one test of a pointer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/dbm/expiry_schedule.h"
#include "hako/sync/raise_to.h"

namespace hako {

// The clock of a database, and the stored form of its values.
//
// Thread-safe.
class Expiry {
 public:
  // Returns the time. Must be thread-safe.
  using Clock = std::uint64_t (*)();
  static constexpr std::uint64_t kNever = 0;
  // The last time that can be stored, in the year 285,428. In an Action, kKeep means the present
  // time of the record, and kInvalid a time that cannot be stored.
  static constexpr std::uint64_t kTimeMax = (std::uint64_t{1} << 53) - 1, kKeep = (std::uint64_t{1} << 56) - 1, kInvalid = kKeep - 1;
  static constexpr std::size_t kTailMax = 8;  // bytes

  // Begins at the time `latest`, which the database has already seen. Uses the system's clock if
  // `clock` is nullptr.
  Expiry(Clock clock, std::uint64_t latest) : clock_(clock != nullptr ? clock : &SystemClock), latest_(std::min(latest, kTimeMax)) {}

  // The clock of a copy while it is being made, so that no record expires in the copy that has not
  // expired in the original. Such a database has no background thread that removes records.
  static std::uint64_t FirstTime() { return 1; }
  bool IsOfCopy() const { return clock_ == &FirstTime; }
  // Returns the initial clock of a new database; 0 without the option `expiry`.
  template <class Options>
  static std::uint64_t FirstClock(const Options& options) {
    if constexpr (requires { options.expiry; }) {
      if (options.expiry) return std::max<std::uint64_t>(Expiry(options.clock, 0).Now(), 1);
    }
    return 0;
  }

  // Returns the present time.
  std::uint64_t Now() const {
    const std::uint64_t now = std::min(clock_(), kTimeMax);
    const std::uint64_t latest = sync::RaiseTo(latest_, now);
    return latest - now < kBehindMin ? latest : BehindNow();
  }
  // The latest time that Now has returned.
  std::uint64_t latest() const { return latest_.load(std::memory_order_relaxed); }
  // Moves the time forward to that of the database from which the records come.
  void NoteTime(std::uint64_t time) const { sync::RaiseTo(latest_, std::min(time, kTimeMax)); }
  // Whether a record with this expiry time has expired. IsPast also registers that an operation
  // reports the record absent.
  bool HasPassed(std::uint64_t time) const { return time != kNever && time <= Now(); }
  bool IsPast(std::uint64_t time) const { return time != kNever && WasPast(time, Now()); }
  // As IsPast, at an earlier moment at which Now() returned `now`.
  bool WasPast(std::uint64_t time, std::uint64_t now) const {
    if (time == kNever || time > now) return false;
    sync::RaiseTo(reported_, time);
    return true;
  }
  // The latest expiry time of a record that was reported absent. A file with this clock, or a later
  // one, revives none of these records.
  std::uint64_t reported() const { return reported_.load(std::memory_order_relaxed); }

  // Registers a Set of a record that expires at `time`. Returns false if `time` has passed.
  bool NoteSet(std::uint64_t time) const {
    if (time == kNever) return true;
    const std::uint64_t now = Now();
    if (time <= now) return false;
    schedule_.NoteSet(time, now);
    return true;
  }

  // A value and its expiry time.
  struct Record {
    std::string_view value;
    std::uint64_t time = kNever;
  };
  // Splits a stored value into value and time. Returns nullopt if it does not have the stored form.
  static std::optional<Record> Split(std::string_view stored) {
    if (stored.empty()) return std::nullopt;
    if (IsPlain(stored.back())) return Record{stored.substr(0, stored.size() - 1), kNever};
    std::uint64_t tail;
    if (stored.size() < kTailMax) return std::nullopt;
    std::memcpy(&tail, stored.data() + stored.size() - kTailMax, kTailMax);
    if (!IsTimed(tail)) return std::nullopt;
    return Record{stored.substr(0, stored.size() - kTailMax), TimeIn(tail)};
  }
  // Steps of Split, for callers that have only the last byte or the last 8 bytes of a stored value.
  static constexpr bool IsPlain(char last) { return last == kPlain; }
  static constexpr bool IsPlain(std::uint64_t tail) { return tail >> 56 == kPlain; }
  static constexpr bool IsTimed(std::uint64_t tail) { return (tail - kLeastTail) <= kTimeMax - 1; }
  static constexpr std::uint64_t TimeIn(std::uint64_t tail) { return tail & kKeep; }
  // Returns the size of the tail of a value with this time.
  static constexpr std::size_t TailSize(std::uint64_t time) { return time == kNever ? 1 : kTailMax; }
  // Writes the stored form to `out`.
  static std::string_view Join(std::string_view value, std::uint64_t time, char* out) {
    if (!value.empty()) std::memcpy(out, value.data(), value.size());
    char* const tail = out + value.size();
    if (time == kNever) {
      *tail = kPlain;
      return {out, value.size() + 1};
    }
    const std::uint64_t bytes = time | std::uint64_t{kTimed} << 56;
    std::memcpy(tail, &bytes, kTailMax);
    return {out, value.size() + kTailMax};
  }
  // Decides when the next pass over the database removes the expired records.
  ExpirySchedule& schedule() const { return schedule_; }

  static Status OutOfRangeError() { return absl::InvalidArgumentError("the time of expiry is out of range"); }
  static Status NoTimesError() { return absl::FailedPreconditionError("the database was created without the option expiry"); }
  static Status MalformedError() { return absl::DataLossError("a value of a database with expiry lacks its time"); }

 private:
  static constexpr char kPlain = 0, kTimed = 1;
  static constexpr std::uint64_t kLeastTail = (std::uint64_t{kTimed} << 56) + 1;  // the tail of the time 1
  static constexpr std::uint64_t kBehindMin = 1000;
  static std::uint64_t SystemClock() { return CoarseWallMilliseconds(); }
  // Now() while the clock is behind.
  [[gnu::cold, gnu::noinline]] std::uint64_t BehindNow() const {
    if (clock_ != &SystemClock) return latest();
    const std::uint64_t steady = SteadyMilliseconds(), slow = steady - steady / 8, before = latest();
    sync::RaiseTo(ahead_of_slow_, before - std::min(before, slow));
    NoteTime(slow + ahead_of_slow_.load(std::memory_order_relaxed));
    return latest();
  }

  const Clock clock_;
  mutable std::atomic<std::uint64_t> latest_, reported_{0};
  mutable std::atomic<std::uint64_t> ahead_of_slow_{0};  // the largest lead of the time over the slowed clock of BehindNow
  mutable ExpirySchedule schedule_;
};

// Memory for stored values that all live until the object is destroyed.
class StoredValues {
 public:
  // Adds a value, and returns its stored form. May throw std::bad_alloc.
  std::string_view Add(std::string_view value, std::uint64_t time) {
    const std::size_t size = value.size() + Expiry::TailSize(time);
    if (size > room_) {
      room_ = std::max(size, kChunk);
      chunks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
      next_ = chunks_.back().get();
    }
    const std::string_view stored = Expiry::Join(value, time, next_);
    next_ += size;
    room_ -= size;
    return stored;
  }

 private:
  static constexpr std::size_t kChunk = 32 << 10;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* next_ = nullptr;
  std::size_t room_ = 0;
};

}  // namespace hako
