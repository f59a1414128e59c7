// A file that fails on command: FaultFile<F> passes every call on to the F inside until the call
// that its plan names.
//
// The plan is a separate object, shared with the test, which arms it while the engine owns
// the file. Calls are counted by kind from the moment of arming, so a test can fail call 1, 2, 3,
// ... until a run meets no fault any more. Stores through a map are not calls and never fail. Any
// thread may call anything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"

namespace hako {

enum class FaultKind { kRead, kWrite, kResize, kSync, kClose };

struct Fault {
  std::optional<FaultKind> kind = std::nullopt;  // nullopt: any kind
  std::uint64_t call = 1;                        // which call fails, counted from 1
  Status status = absl::UnknownError("injected fault");
  bool forever = false;   // every later call of the kind fails too
  bool is_short = false;  // a read or write transfers its first half before it fails; never between two bytes of a pair
};

class FaultPlan {
 public:
  void Arm(Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
    calls_ = 0;
    fired_count_ = 0;
  }

  void Disarm() {
    const std::lock_guard lock(mutex_);
    fault_.reset();
  }

  // How many calls have failed since Arm.
  std::uint64_t fired_count() const {
    const std::lock_guard lock(mutex_);
    return fired_count_;
  }

  // How many calls of a kind there have been at all.
  std::uint64_t call_count(FaultKind kind) const {
    const std::lock_guard lock(mutex_);
    return call_counts_[static_cast<std::size_t>(kind)];
  }

  // For FaultFile: counts a call, and returns how it is to fail, if at all.
  std::optional<Fault> Next(FaultKind kind) {
    const std::lock_guard lock(mutex_);
    ++call_counts_[static_cast<std::size_t>(kind)];
    if (!fault_ || (fault_->kind && *fault_->kind != kind)) return std::nullopt;
    ++calls_;
    if (calls_ < fault_->call || (calls_ > fault_->call && !fault_->forever)) return std::nullopt;
    ++fired_count_;
    return fault_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Fault> fault_;
  std::uint64_t calls_ = 0;  // of the fault's kind since Arm
  std::uint64_t fired_count_ = 0;
  std::array<std::uint64_t, 5> call_counts_{};
};

template <File F>
class FaultFile {
 public:
  FaultFile(F file, std::shared_ptr<FaultPlan> plan) : file_(std::move(file)), plan_(std::move(plan)) {}

  std::uint64_t Size() const { return file_.Size(); }
  bool IsWritable() const { return file_.IsWritable(); }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    const std::optional<Fault> fault = plan_->Next(FaultKind::kRead);
    if (!fault) return file_.ReadAt(offset, out);
    if (fault->is_short) HAKO_RETURN_IF_ERROR(file_.ReadAt(offset, out.first(out.size() / 2)));
    return fault->status;
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    const std::optional<Fault> fault = plan_->Next(FaultKind::kWrite);
    if (!fault) return file_.WriteAt(offset, in);
    if (fault->is_short) HAKO_RETURN_IF_ERROR(file_.WriteAt(offset, in.first(in.size() / 2 / 2 * 2)));
    return fault->status;
  }
  Status Resize(std::uint64_t size) {
    const std::optional<Fault> fault = plan_->Next(FaultKind::kResize);
    return fault ? fault->status : file_.Resize(size);
  }
  Status Sync() {
    const std::optional<Fault> fault = plan_->Next(FaultKind::kSync);
    return fault ? fault->status : file_.Sync();
  }
  // Closes the file in any case, as close() does.
  Status Close() {
    const std::optional<Fault> fault = plan_->Next(FaultKind::kClose);
    const Status closed = file_.Close();
    return fault ? fault->status : closed;
  }

  std::span<const std::byte> View(std::uint64_t offset, std::size_t size) const requires MappedFile<F> { return file_.View(offset, size); }
  std::span<std::byte> MutableView(std::uint64_t offset, std::size_t size) requires MappedFile<F> {
    return file_.MutableView(offset, size);
  }
  Status SyncRange(std::uint64_t offset, std::size_t size) requires MappedFile<F> {
    const std::optional<Fault> fault = plan_->Next(FaultKind::kSync);
    return fault ? fault->status : file_.SyncRange(offset, size);
  }
  FileIdentity Identity() const requires KernelBackedFile<F> { return file_.Identity(); }

 private:
  F file_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace hako
