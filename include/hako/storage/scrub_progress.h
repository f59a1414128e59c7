// The options and the findings of a scrub (HashDBM::Scrub, TreeDBM::Scrub, ArrayDBM::Scrub).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/storage/salvage_report.h"

namespace hako {

// How much one call of Scrub does.
struct ScrubOptions {
  // Bytes to read from the file. A call ends after the first page, value or extent of records that
  // reaches this number. A call may exceed it by 9 MiB, or by the longest value.
  std::uint64_t max_bytes = std::uint64_t{4} << 20;
};

// The result of one call of Scrub.
struct ScrubProgress {
  // A damaged place of the file.
  struct Damage {
    SalvageReport::Kind kind = SalvageReport::Kind::kRecord;  // what is damaged
    std::uint64_t offset = 0;                                 // of its first byte
    std::uint64_t size = 0;                                   // in bytes; 0 = unknown
    Status error;                                             // DataLoss, or that of the device; names the offset
  };

  std::uint64_t read_bytes = 0;  // by this call
  // The progress of the pass, from 0 to `end`: in bytes, or in page ids of a tree or an array.
  std::uint64_t position = 0;
  std::uint64_t end = 0;
  // Whether this call has ended a pass: everything that was in the file since the beginning of the
  // pass has been read. The next call begins another pass.
  bool is_complete = false;
  std::vector<Damage> damage;  // found by this call

  // Adds a damaged place.
  void Add(SalvageReport::Kind kind, std::uint64_t offset, std::uint64_t size, Status error) {
    damage.push_back({kind, offset, size, std::move(error)});
  }
};

}  // namespace hako
