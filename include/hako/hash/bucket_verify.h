// Checks the buckets of a hash table against each other and against the records.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/line_access.h"
#include "hako/hash/line_table.h"
#include "hako/hash/record_view.h"

namespace hako::hash {

// Checks the chains and the number of entries. Calls twins(handle, handle) for entries of one
// bucket with the same tag, which may have the same key.
// REQUIRES: no writers (unchecked: as RemoveAll)
template <class Space, class F>
Status VerifyLines(const LineTable<Space>& lines, std::uint64_t expected, F&& twins) {
  std::uint64_t records = 0;
  std::unordered_set<std::uint32_t> overflow;
  for (std::uint64_t index = 0; index < lines.num_lines(); ++index) {
    format::BucketLine& home = lines.Home(index);
    unsigned hops = 0;
    for (format::BucketLine* line = &home; line != nullptr;) {
      const std::uint32_t header = LoadHeader(*line);
      if (HasLink(header) && !overflow.insert(LoadSlot(*line, format::kLinkEntry)).second) return lines.BrokenChain(*line);
      HAKO_ASSIGN_OR_RETURN(line, lines.NextLine(*line, header, &hops));
    }
    // The tags and handles of the entries seen.
    absl::InlinedVector<std::pair<std::uint16_t, std::uint32_t>, 2 * format::kLineEntries> seen;
    HAKO_RETURN_IF_ERROR(lines.ForEachEntry(home, [&](format::BucketLine& line, unsigned i, std::uint32_t handle) {
      const std::uint16_t tag = LoadTag(line, i);
      for (const auto& [other_tag, other] : seen) {
        if (other_tag == tag) twins(other, handle);
      }
      seen.emplace_back(tag, handle);
      ++records;
    }));
  }
  if (records != expected) return absl::DataLossError(absl::StrCat("the buckets hold ", records, " records instead of ", expected));
  return absl::OkStatus();
}

// Checks the records that entries name, one bucket at a time, beside writers. For spaces whose
// records are in memory: each bucket stays locked while its records are read.
template <class Space>
Status VerifyRecords(BucketIndex<Space>& index, typename Space::WriterState& writer) {
  std::vector<typename BucketIndex<Space>::ListedEntry> entries;
  for (std::uint64_t bucket = 0; bucket < index.num_lines(); ++bucket) {
    Status status;
    index.RunOnBucket(writer, bucket, &entries, [&] {
      absl::InlinedVector<std::string, format::kLineEntries> keys;
      for (const auto& entry : entries) {
        const StatusOr<RecordView> record = index.space().View(writer, entry.handle);
        if (!record.ok()) {
          status.Update(record.status());
          continue;
        }
        const std::uint64_t hash = index.space().KeyHash(record->key);
        const Place place = Locate(hash, index.lines().shape());
        if (place.index != bucket) {
          status.Update(absl::DataLossError(absl::StrCat("a record of bucket ", place.index, " is in bucket ", bucket)));
        } else if (entry.tag != place.TagOf(hash)) {
          status.Update(absl::DataLossError(absl::StrCat("wrong tag in bucket ", bucket)));
        } else if (std::find(keys.begin(), keys.end(), record->key) != keys.end()) {
          status.Update(absl::DataLossError(absl::StrCat("duplicate key in bucket ", bucket)));
        }
        keys.emplace_back(record->key);
      }
    });
    HAKO_RETURN_IF_ERROR(index.ListEntries(bucket, &entries));  // returns an error if the chain is broken
    HAKO_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace hako::hash
