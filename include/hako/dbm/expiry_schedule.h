// Decides when a pass over a database should remove the expired records: once they are an estimated
// twentieth of all records, and at most an hour after any record has expired.
//
// A pass sees every record, and counts the records by classes of their remaining time, in powers of
// two. Between passes one in kSampled of the records that are set is counted in the same way. The
// result is an estimate: it assumes that the records of a class expire evenly, and it includes
// records that were replaced or removed since.
//
// Invariants
//   1. The samples are drawn at random, so no order of Sets, threads or databases hides records.
//   2. No record in the database expires before Earliest(), except one whose Set was not yet
//      complete when the last two passes began.
//   3. After RequestPass a pass is due until a pass that began after the request has ended.
//   4. Close stores FirstExpiry, so that the next Open need not read all records: a pass is due
//      once one of them may have expired.
//
// Like the active expiry of Redis, this tolerates a share of expired records that is bounded by an
// estimate. Redis estimates the share from random samples of the records themselves.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "hako/base/language.h"

namespace hako {

// Counts records by their remaining time in milliseconds, and keeps the earliest expiry time.
class ExpirySurvey {
 public:
  static constexpr std::size_t kClasses = 54;  // times have 53 bits
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  // Counts a record that expires at `time`; 0 = never.
  void Count(std::uint64_t time, std::uint64_t now) {
    if (time <= now) return;
    ++records_[static_cast<std::size_t>(std::bit_width(time - now))];
    earliest_ = std::min(earliest_, time);
  }
  // Estimates how many of the records expire within `elapsed`, if they are spread evenly within
  // each class.
  double Expired(std::uint64_t elapsed) const {
    double sum = 0;
    for (std::size_t i = 1; i < kClasses; ++i) {
      const double least = static_cast<double>(std::uint64_t{1} << (i - 1));
      sum += static_cast<double>(records_[i]) * std::clamp((static_cast<double>(elapsed) - least) / least, 0.0, 1.0);
    }
    return sum;
  }
  // The time at which the first record expires; kNone if none does.
  std::uint64_t earliest() const { return earliest_; }

 private:
  std::array<std::uint64_t, kClasses> records_{};
  std::uint64_t earliest_ = kNone;
};

// NoteSet and RequestPass are thread-safe; only the thread that makes the passes may call the
// others.
class ExpirySchedule {
 public:
  // Call when a record is set that expires at `time`, which is after `now`.
  void NoteSet(std::uint64_t time, std::uint64_t now) {
    std::uint64_t earliest = earliest_set_.load(std::memory_order_relaxed);
    while (time < earliest && !earliest_set_.compare_exchange_weak(earliest, time, std::memory_order_relaxed)) continue;
    if (IsSampled())
      set_[std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(time - now)), ExpirySurvey::kClasses - 1)].fetch_add(
          kSampled, std::memory_order_relaxed);
  }
  // Call if the database may have records that no pass has seen and that NoteSet has not been told
  // of.
  void RequestPass() { num_requests_.fetch_add(1); }

  // Call in Open, with the stored FirstExpiry: the records expire at `first` or later.
  void ExpectNone(std::uint64_t now, std::uint64_t first) {
    began_ = now;
    unseen_from_ = first;
    num_served_ = num_requests_.load();
  }
  // Returns a time before which no record in the database expires; kNone = none expires, 0 =
  // unknown. REQUIRES: no other thread changes records (unchecked: this object does not know the
  // writers)
  std::uint64_t FirstExpiry() const { return num_served_ == num_requests_.load() ? std::min(Earliest(), unseen_from_) : 0; }

  // Whether a pass should begin. `count` is the number of records in the database.
  bool IsDue(std::uint64_t now, std::uint64_t count) const {
    if (num_served_ != num_requests_.load()) return std::chrono::steady_clock::now() >= retry_at_;
    return now >= unseen_from_ || ExpiredShare(now, count) >= kDueShare || (Earliest() <= now && Since(now) >= kDelayMax);
  }
  // Returns how long the pass should take: the time until kShareMax of all records have expired, at
  // the rate of expiry since the last pass.
  std::chrono::duration<double> BeginPass(std::uint64_t now) {
    const auto steady_now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> since_last = steady_now - steady_began_;
    began_ = now;
    steady_began_ = steady_now;
    num_begun_ = num_requests_.load();
    unseen_from_ = ExpirySurvey::kNone;
    earliest_before_ = earliest_set_.exchange(ExpirySurvey::kNone, std::memory_order_relaxed);
    for (auto& records : set_) records.store(0, std::memory_order_relaxed);
    return since_last * (kShareMax / kDueShare - 1);
  }
  // Call at the end of a pass, with the records that it has seen.
  void EndPass(const ExpirySurvey& survey) {
    survey_ = survey;
    earliest_ = std::min(survey.earliest(), earliest_before_);
    num_served_ = num_begun_;
  }
  // Call if the pass has failed. Makes another pass due after a delay.
  void FailPass() {
    RequestPass();
    retry_at_ = std::chrono::steady_clock::now() + kRetryDelay;
  }

  // Estimates the share, 0 to 1, of the `count` records that have expired since the last pass.
  // Assumes that Sets were spread evenly since then, and that each expiry time is the earliest of
  // its class, so that passes are not late.
  double ExpiredShare(std::uint64_t now, std::uint64_t count) const {
    double sum = survey_.Expired(Since(now));
    for (std::size_t i = 1; i < set_.size(); ++i) {
      const double records = static_cast<double>(set_[i].load(std::memory_order_relaxed));
      const double least = static_cast<double>(std::uint64_t{1} << (i - 1)), since = static_cast<double>(Since(now));
      if (since > least) sum += records * (since - least) / since;
    }
    return sum < 1 ? 0 : std::min(sum / static_cast<double>(std::max<std::uint64_t>(count, 1)), 1.0);
  }
  // Returns the earliest expiry time of the records that the last pass saw and of those set since.
  std::uint64_t Earliest() const { return std::min(earliest_, earliest_set_.load(std::memory_order_relaxed)); }

 private:
  static constexpr unsigned kSampled = 8;
  static constexpr double kDueShare = 0.05, kShareMax = 0.08;
  static constexpr std::uint64_t kDelayMax = 3'600'000;
  static constexpr std::chrono::seconds kRetryDelay{10};

  std::uint64_t Since(std::uint64_t now) const { return now - std::min(now, began_); }
  // Returns true once in kSampled calls, at random. Each thread begins with another seed, because a
  // thread may make few calls.
  static bool IsSampled() {
    static constinit std::atomic<std::uint64_t> seeds{0};
    static constinit thread_local std::uint64_t state = 0;
    if (state == 0) [[unlikely]]
      state = seeds.fetch_add(0x9e37'79b9'7f4a'7c15, std::memory_order_relaxed) ^ 0xd1b5'4a32'd192'ed03;
    state = state * 6'364'136'223'846'793'005 + 1'442'695'040'888'963'407;
    return state >> 61 == 0;
  }

  std::uint64_t began_ = 0;  // when the last pass began
  std::chrono::steady_clock::time_point steady_began_, retry_at_;
  std::uint64_t num_begun_ = 0, num_served_ = 0;  // requests before the last pass began, and before the last one that has ended
  ExpirySurvey survey_;
  std::uint64_t unseen_from_ = ExpirySurvey::kNone;      // when the first record may expire that no pass since Open has seen
  std::uint64_t earliest_ = ExpirySurvey::kNone;         // as the last pass has found
  std::uint64_t earliest_before_ = ExpirySurvey::kNone;  // of the records that were set between the last pass and the one before
  std::atomic<std::uint64_t> num_requests_{1};
  // Since the last pass began
  std::atomic<std::uint64_t> earliest_set_{ExpirySurvey::kNone};
  std::array<std::atomic<std::uint64_t>, ExpirySurvey::kClasses> set_{};
};

}  // namespace hako
