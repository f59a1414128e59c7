// Definitions of log/record_log.h.
#pragma once

#include "hako/log/record_log.h"

namespace hako::log {

template <File FileT>
Status RecordLog<FileT>::Begin(Lsn keep) HAKO_TRY {
  const Lsn tail = tail_.load(std::memory_order_relaxed);
  {
    sync::MutexLock lock(tail_mutex_);
    // The newest segment that the log is read from up to its end.
    std::uint64_t predecessor = 0;
    for (const Segment& segment : segments_.used()) {
      if (segment.first <= tail) predecessor = segment.sequence;
    }
    HAKO_RETURN_IF_ERROR(segments_.Start(tail, predecessor));
    HAKO_RETURN_IF_ERROR(file_.Sync());
    segments_.DropAfter(predecessor);
    segments_.Release(keep);
  }
  durable_.store(tail, std::memory_order_release);
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

// Cuts an entry into records.
template <File FileT>
void RecordLog<FileT>::Cut(const LogEntry& entry, bool run_continues, std::uint64_t secret, Parts* parts) {
  std::string_view key = entry.key, value = entry.value;
  format::LogOp op = entry.op;
  do {
    Part part;
    if (op != format::LogOp::kPart) {
      part.key = key.substr(0, format::kLogPartMax);
      part.value = value.substr(0, format::kLogPartMax - part.key.size());
      key.remove_prefix(part.key.size());
      value.remove_prefix(part.value.size());
    } else {
      std::string_view& rest = key.empty() ? value : key;
      part.value = rest.substr(0, format::kLogPartMax);
      rest.remove_prefix(part.value.size());
    }
    const bool goes_on = !key.empty() || !value.empty();
    part.header.size = static_cast<std::uint32_t>(sizeof(part.header) + part.key.size() + part.value.size());
    part.header.op = static_cast<std::uint8_t>(op);
    part.header.flags = static_cast<std::uint8_t>((goes_on ? format::LogRecordHeader::kEntryContinues : 0) |
                                                  (run_continues ? format::LogRecordHeader::kRunContinues : 0));
    part.header.key_size = op == format::LogOp::kPart ? 0 : static_cast<std::uint32_t>(entry.key.size());
    part.digest = format::LogDigest(part.header, part.key, part.value, secret);
    parts->push_back(part);
    op = format::LogOp::kPart;
  } while (!key.empty() || !value.empty());
}

template <File FileT>
StatusOr<Lsn> RecordLog<FileT>::Append(std::span<const LogEntry> entries) HAKO_TRY {
  Parts parts;
  for (const LogEntry& entry : entries) Cut(entry, &entry != &entries.back(), secret_, &parts);
  sync::MutexLock lock(tail_mutex_);
  HAKO_RETURN_IF_ERROR(AppendParts(parts));
  return tail_.load(std::memory_order_relaxed);
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status RecordLog<FileT>::AppendParts(Parts& parts) {
  HAKO_RETURN_IF_ERROR(failure_.Get());
  std::uint64_t bytes = 0;
  for (const Part& part : parts) bytes += format::LogRecordSpace(part.header.size);
  if (tail_.load(std::memory_order_relaxed) + bytes > segments_.used().back().end()) HAKO_RETURN_IF_ERROR(segments_.Reserve(bytes));
  for (Part& part : parts) {
    if (Status status = Put(part); !status.ok()) return Fail(status);
  }
  return absl::OkStatus();
}

template <File FileT>
Status RecordLog<FileT>::Put(Part& part) {
  const Lsn tail = tail_.load(std::memory_order_relaxed);
  const std::uint64_t space = format::LogRecordSpace(part.header.size);
  if (tail + space > segments_.used().back().end()) HAKO_RETURN_IF_ERROR(segments_.Start(tail, segments_.used().back().sequence));
  const Segment& segment = segments_.used().back();
  part.header.check = format::LogCheck(part.digest, tail, segment.sequence);
  const auto copy_to = [&part](char* out) {
    std::memcpy(out, &part.header, sizeof(part.header));
    out += sizeof(part.header);
    if (!part.key.empty()) std::memcpy(out, part.key.data(), part.key.size());
    if (!part.value.empty()) std::memcpy(out + part.key.size(), part.value.data(), part.value.size());
  };
  if constexpr (MappedFile<FileT>) {
    copy_to(reinterpret_cast<char*>(file_.MutableView(segment.PlaceOf(tail), part.header.size).data()));
  } else {
    absl::InlinedVector<char, 256> bytes(part.header.size);
    copy_to(bytes.data());
    HAKO_RETURN_IF_ERROR(file_.WriteAt(segment.PlaceOf(tail), std::as_bytes(std::span(bytes))));
  }
  tail_.store(tail + space, std::memory_order_release);
  return absl::OkStatus();
}

template <File FileT>
StatusOr<Lsn> RecordLog<FileT>::SyncTail() {
  const Le<std::uint64_t> durable = durable_.load(std::memory_order_relaxed);
  Lsn tail;
  {
    sync::MutexLock lock(tail_mutex_);
    Parts mark;
    Cut({format::LogOp::kMark, {}, {reinterpret_cast<const char*>(&durable), sizeof(durable)}}, false, secret_, &mark);
    Status status = AppendParts(mark);
    if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
    tail = tail_.load(std::memory_order_relaxed);
  }
  if (Status status = file_.Sync(); !status.ok()) return Fail(status);
  return tail;
}

template <File FileT>
Status RecordLog<FileT>::WaitDurable(Lsn lsn) HAKO_TRY {
  if (durable() >= lsn) return absl::OkStatus();
  sync::MutexLock lock(sync_mutex_);
  while (durable_.load(std::memory_order_relaxed) < lsn) {
    HAKO_RETURN_IF_ERROR(failure_.Get());
    if (is_syncing_) {
      synced_.Wait(sync_mutex_);
      continue;
    }
    is_syncing_ = true;
    StatusOr<Lsn> synced = Lsn{0};
    {
      sync::MutexUnlock unlocked(sync_mutex_);
      HAKO_TRY { synced = SyncTail(); }
      HAKO_CATCH_NO_MEMORY(synced = NoMemoryError();)
    }
    is_syncing_ = false;
    synced_.NotifyAll();
    HAKO_RETURN_IF_ERROR(synced.status());
    durable_.store(*synced, std::memory_order_release);
  }
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

}  // namespace hako::log
