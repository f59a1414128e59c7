// The captures of a hash table (hash/bucket_capture.h). While there are any, each writer passes a
// bucket to them before it changes the bucket.
//
// Thread-safe, except Begin and End.
#pragma once

#include <cstdint>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/hash/line_table.h"
#include "hako/hash/record_view.h"
#include "hako/sync/version_lock.h"

namespace hako::hash {

template <class Space>
class BucketCapture;

template <class Space>
class CaptureList {
  using WriterState = typename Space::WriterState;

 public:
  CaptureList(Space& space, const LineTable<Space>& lines) : space_(space), lines_(lines) {}
  CaptureList(const CaptureList&) = delete;

  // REQUIRES: no writers, for either
  void Begin(BucketCapture<Space>* capture) {
    space_.gate().AssertNoWriters();
    capture->Begin(lines_.num_lines());
    captures_.push_back(capture);
    space_.gate().SetCapturing(true);
  }
  void End(BucketCapture<Space>* capture) {
    space_.gate().AssertNoWriters();
    std::erase(captures_, capture);
    space_.gate().SetCapturing(!captures_.empty());
  }
  // Makes all captures fail, because their moment can no longer be shown.
  void Fail(const Status& why) const {
    for (BucketCapture<Space>* const capture : captures_) capture->Fail(why);
  }

  // REQUIRES: the writer has locked the bucket, and not yet changed it
  void CaptureIfAsked(WriterState& writer, std::uint64_t bucket) const {
    writer.AssertBusy();
    HAKO_DCHECK(sync::VersionLock(lines_.Home(bucket).header).IsLocked());
    if (space_.gate().IsCapturing()) [[unlikely]]
      Capture(writer, bucket);
  }

 private:
  // Counts the records that can be read, and keeps the first error.
  [[gnu::cold, gnu::noinline]] void Capture(WriterState& writer, std::uint64_t bucket) const {
    for (BucketCapture<Space>* const capture : captures_) {
      capture->Capture(bucket, [&](auto&& visit) -> Status {
        Status unread;
        const Status chain = lines_.ForEachEntry(lines_.Home(bucket), [&](auto&, unsigned, std::uint32_t handle) {
          const StatusOr<RecordView> record = space_.View(writer, handle);
          unread.Update(record.status());
          if (record.ok()) visit(record->key, record->value);
        });
        return chain.ok() ? unread : chain;
      });
    }
  }

  Space& space_;
  const LineTable<Space>& lines_;
  std::vector<BucketCapture<Space>*> captures_;  // changed without writers
};

}  // namespace hako::hash
