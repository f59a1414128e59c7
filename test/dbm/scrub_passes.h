// Passes of Scrub over the file of a database, for its tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/storage/scrub_progress.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {

// Whether the directory of the tests has direct I/O.
inline bool HasDirectIo() {
  static const bool has = [] {
    TempDir dir;
    FileOptions options;
    options.direct = true;
    return PositionalParallelFile::Open(dir.File("direct"), options).ok();
  }();
  return has;
}

// The findings of all calls of a pass.
struct ScrubbedPass {
  std::vector<ScrubProgress::Damage> damage;
  std::uint64_t read_bytes = 0, num_calls = 0;
};

// Scrubs to the end of a pass, which the last call has completed before. A call reads no more than it
// is asked to, except for a last piece.
template <class D>
ScrubbedPass ScrubWhole(D& db, std::uint64_t max_bytes) {
  static constexpr std::uint64_t kBeyond = 10 << 20;
  ScrubbedPass pass;
  for (std::uint64_t position = 0;;) {
    auto progress = db.Scrub({.max_bytes = max_bytes});
    EXPECT_THAT(progress.status(), IsOk());
    if (!progress.ok()) return pass;
    EXPECT_LE(progress->read_bytes, max_bytes + kBeyond);
    EXPECT_GE(progress->position, position);
    EXPECT_LE(progress->position, progress->end);
    position = progress->position;
    ++pass.num_calls;
    pass.read_bytes += progress->read_bytes;
    std::ranges::move(progress->damage, std::back_inserter(pass.damage));
    if (progress->is_complete) {
      EXPECT_EQ(progress->position, progress->end);
      return pass;
    }
  }
}

}  // namespace hako
