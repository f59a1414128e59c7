// Archetypes of hako's concepts: each provides the requirements of its concept, and no more. A
// concept does not constrain the body of a template that uses it; instantiating the template with
// the archetype shows whether the body uses only the concept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/file/bounds.h"
#include "hako/file/file.h"

namespace hako {

// A File that is not mapped, has no identity and no path, and can be moved but not copied or made
// from nothing.
class ArchetypeFile {
 public:
  static ArchetypeFile Make() { return ArchetypeFile(std::make_shared<State>()); }
  // For the test that made it: another handle.
  ArchetypeFile Share() const { return ArchetypeFile(state_); }

  std::uint64_t Size() const {
    const std::shared_lock lock(state_->mutex);
    return state_->bytes.size();
  }
  bool IsWritable() const { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    const std::shared_lock lock(state_->mutex);
    HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), state_->bytes.size()));
    std::ranges::copy(std::span(state_->bytes).subspan(offset, out.size()), out.begin());
    return absl::OkStatus();
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    const std::unique_lock lock(state_->mutex);
    HAKO_RETURN_IF_ERROR(CheckInside(offset, in.size(), state_->bytes.size()));
    std::ranges::copy(in, state_->bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    return absl::OkStatus();
  }
  Status Resize(std::uint64_t size) {
    const std::unique_lock lock(state_->mutex);
    state_->bytes.resize(size);
    return absl::OkStatus();
  }
  Status Sync() { return absl::OkStatus(); }
  Status Close() { return absl::OkStatus(); }

  ArchetypeFile(ArchetypeFile&&) = default;
  ArchetypeFile& operator=(ArchetypeFile&&) = default;

 private:
  struct State {
    mutable std::shared_mutex mutex;
    std::vector<std::byte> bytes;
  };

  explicit ArchetypeFile(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

static_assert(File<ArchetypeFile> && !MappedFile<ArchetypeFile> && !KernelBackedFile<ArchetypeFile> && !PathFile<ArchetypeFile>);

}  // namespace hako
