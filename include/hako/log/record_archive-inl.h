// Definitions of log/record_log.h: the log with an archive.
#pragma once

#include "hako/log/record_log.h"

namespace hako::log {

template <File FileT>
Status RecordLog<FileT>::FindUnarchived(LogArchive<FileT>& archive) {
  sync::MutexLock lock(tail_mutex_);
  has_archive_ = true;
  const Link last = archive.last();
  const bool is_here = last.log == database_;
  LogReader<FileT> reader(file_, segments_.used(), {}, secret_);
  Status status;
  segments_.FollowBack(is_here ? last.sequence : 0, [&](const Segment& segment) {
    const StatusOr<bool> whole = reader.IsWhole(segment);
    status.Update(whole.status());
    return whole.ok() && *whole;
  });
  HAKO_RETURN_IF_ERROR(status);
  const auto& used = segments_.used();
  if (used.empty()) return absl::DataLossError("the log has no segment");
  const Lsn tail = tail_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < used.size() && used[i].first <= tail; ++i) {
    Segment kept = used[i];
    kept.limit = i + 1 < used.size() ? std::min(used[i + 1].first, tail) : tail;
    HAKO_ASSIGN_OR_RETURN(const bool is_whole, reader.IsWhole(kept));
    if (!is_whole) {
      return DataLossError(
          "the log has a damaged record that the archive needs; the database does not: end its history by log_archive=none; segment",
          kept.offset());
    }
  }
  const Segment& first = used.front();
  const auto has = [&used](std::uint64_t sequence) { return std::ranges::find(used, sequence, &Segment::sequence) != used.end(); };
  const bool goes_on = is_here ? has(last.sequence) || (first.before() == last) : last.IsNone() || first.before() == last;
  if (!goes_on) {
    return absl::FailedPreconditionError(absl::StrCat("the log archive ", archive.directory(), " ends with segment ", last.sequence,
                                                      ", and the log goes on after segment ", first.predecessor,
                                                      "; use the archive of this database, or an empty directory"));
  }
  if (last.IsNone()) archive.set_last(first.before());
  segments_.UseHistory(first.before(), secret_);
  segments_.Hold(is_here ? last.sequence + 1 : 0);
  return absl::OkStatus();
}

template <File FileT>
Status RecordLog<FileT>::Archive(LogArchive<FileT>& archive, std::uint64_t before) HAKO_TRY {
  for (;;) {
    Segment segment;
    Lsn end = tail();
    {
      sync::MutexLock lock(tail_mutex_);
      const auto& used = segments_.used();
      const auto next =
          std::ranges::find_if(used, [this](const Segment& s) ABSL_NO_THREAD_SAFETY_ANALYSIS { return s.sequence >= segments_.held(); });
      if (next == used.end() || next->sequence >= before || next->first > end) return absl::OkStatus();
      segment = *next;
      if (next + 1 != used.end()) end = std::min(end, next[1].first);
    }
    if (segment.first != end) HAKO_RETURN_IF_ERROR(archive.Add(file_, database_, segment, end));
    sync::MutexLock lock(tail_mutex_);
    segments_.Hold(segment.sequence + 1);
  }
}
HAKO_OR_NO_MEMORY

template <File FileT>
Link RecordLog<FileT>::LinkAt(Lsn lsn, const LogArchive<FileT>& archive) const {
  sync::MutexLock lock(tail_mutex_);
  const auto& used = segments_.used();
  const auto it = std::find_if(used.rbegin(), used.rend(), [lsn](const Segment& segment) { return segment.first < lsn; });
  return it != used.rend() ? Link{database_, it->sequence} : archive.last();
}

}  // namespace hako::log
