// Definitions of dbm/hash_dbm.h: Verify and Scrub.
#pragma once

namespace hako {

// Checks the index and the heap against each other: there must be as many entries as records, and
// each record must have an entry.
template <File FileT>
Status HashDBM<FileT>::Verify() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  sync::MutexLock lock(reorganizing_mutex_);
  std::uint64_t count = 0, live = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> twins;
  const auto verify_lines = [&](std::uint64_t num_records) {
    count = num_records;
    return hash::VerifyLines(index().lines(), count, [&](std::uint32_t a, std::uint32_t b) { twins.emplace_back(a, b); });
  };
  const auto visit = [&](const typename Space::ScannedRecord& record) {
    ++live;
    return VerifyEntry(record);
  };
  const auto finish = [&]() -> Status {
    for (const auto& [a, b] : twins) HAKO_RETURN_IF_ERROR(VerifyDiffer(*mine, a, b));
    return live == count ? absl::OkStatus() : FindDamage(live, count);
  };
  if (space_->AcceptsWrites()) {
    const Status verified = WithPinnedState(*mine, verify_lines, [&]() -> Status {
      HAKO_RETURN_IF_ERROR(space_->ScanPinned(visit));
      return finish();
    });
    return verified.ok() ? this->VerifyTimes() : verified;
  }
  const Status verified = RunExclusiveFlushed([&]() -> Status {
    HAKO_RETURN_IF_ERROR(verify_lines(CountFlushed()));
    HAKO_RETURN_IF_ERROR(space_->Scan(format::kFirstExtent, space_->extents().tail(), [&](const typename Space::ScannedRecord& record) {
      return space_->IsNamed(record.stamp) ? visit(record) : absl::OkStatus();
    }));
    return finish();
  });
  return verified.ok() ? this->VerifyTimes() : verified;
}
HAKO_OR_NO_MEMORY

// Checks that a record of the state has an entry with its tag, unless it was retired since.
template <File FileT>
Status HashDBM<FileT>::VerifyEntry(const typename Space::ScannedRecord& record) const {
  const typename Index::Naming naming = index().NamingOf(record.key_hash, record.handle);
  if (naming == Index::Naming::kRight || (naming == Index::Naming::kNone && !space_->IsNamed(record.handle))) return absl::OkStatus();
  return DataLossError(naming == Index::Naming::kNone ? "no bucket has the record" : "a bucket has a wrong tag for the record",
                       space_->OffsetOf(record.handle));
}

// Checks that two records whose entries have the same tag have different keys.
template <File FileT>
Status HashDBM<FileT>::VerifyDiffer(WriterState& mine, std::uint32_t a, std::uint32_t b) const {
  const auto key_of = [&](std::uint32_t handle) -> StatusOr<std::string> {
    HAKO_ASSIGN_OR_RETURN(const hash::RecordView record, space_->View(mine, handle));
    return std::string(record.key);
  };
  const StatusOr<std::string> first = key_of(a), second = key_of(b);
  if (!first.ok() || !second.ok() || *first != *second) return absl::OkStatus();  // the count of records reveals a damaged record anyway
  if (!space_->IsNamed(a) || !space_->IsNamed(b)) return absl::OkStatus();
  return DataLossError("duplicate key in a bucket: its second record", space_->OffsetOf(b));
}

// Finds the damage if the heap and the index do not have the same number of live records.
template <File FileT>
Status HashDBM<FileT>::FindDamage(std::uint64_t live, std::uint64_t count) const {
  const auto pass = [](std::string_view, std::string_view) {};
  HAKO_RETURN_IF_ERROR(index().ForEach(pass));
  return absl::DataLossError(absl::StrCat("the heap holds ", live, " live records, the index ", count));
}

template <File FileT>
StatusOr<ScrubProgress> HashDBM<FileT>::Scrub(const ScrubOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  sync::MutexLock lock(scrub_mutex_);
  ScrubProgress progress;
  if (scrub_.IsAtBegin()) ScrubSuperBlocks(&progress);
  HAKO_RETURN_IF_ERROR(scrub_.Run(*mine, options.max_bytes, &progress));
  return progress;
}
HAKO_OR_NO_MEMORY

// Checks the superblock slots. A database that is open for writing has written both. Of a read-only
// one only the newer slot counts, because a crash may have torn the other.
template <File FileT>
void HashDBM<FileT>::ScrubSuperBlocks(ScrubProgress* progress) {
  using Kind = SalvageReport::Kind;
  sync::MutexLock lock(maintenance_mutex_);
  const auto& extents = space_->extents();
  const std::uint64_t newest = extents.super().sequence % 2;
  for (std::uint64_t slot = 0; slot < 2; ++slot) {
    if (slot != newest && !space_->AcceptsWrites()) continue;
    const std::uint64_t offset = slot * storage::kSlotDistance;
    format::HashSuperBlock block{};
    const Status read = extents.ReadDevice(offset, reinterpret_cast<char*>(&block), sizeof(block));
    progress->read_bytes += sizeof(block);
    if (!read.ok()) {
      progress->Add(Kind::kUnreadable, offset, sizeof(block), read);
    } else if (block.magic != format::kHashFileMagic || block.check != format::CheckOf(block)) {
      progress->Add(Kind::kSuperBlock, offset, sizeof(block), DataLossError("the superblock is damaged", offset));
    }
  }
}

}  // namespace hako
