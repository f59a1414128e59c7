// Definitions of hash/record_heap.h: reading and writing a record.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

template <File FileT>
RecordHeap<FileT>::RecordHeap(std::unique_ptr<ExtentFile<FileT>> extents, std::uint64_t min_read_size)
    : extents_(std::move(extents)),
      shift_(static_cast<unsigned>(std::uint32_t{extents_->super().align_pow})),
      hash_seed_(extents_->super().hash_seed),
      secret_(extents_->super().secret),
      min_read_size_(min_read_size),
      epoch_(extents_->super().epoch + 1),
      durable_epoch_(extents_->super().epoch),
      refusal_(extents_->file().IsWritable() ? absl::OkStatus() : ReadOnlyError()) {
  if constexpr (kMapped) base_ = reinterpret_cast<char*>(extents_->base());
  if constexpr (requires { extents_->file().block_size(); }) block_ = extents_->file().block_size();
  if (block_ > 1) place_unit_ = std::max(block_, kDevicePage);
  sweep_ = {extents_->super().sweep_extent, extents_->super().sweep_to,
            std::min<std::uint64_t>(extents_->super().sweep_end, extents_->tail())};
  const bool is_place = sweep_.extent >= format::kFirstExtent && sweep_.extent % format::kExtentUnit == 0 && sweep_.extent <= sweep_.to;
  if (!is_place) sweep_ = {};  // the next pass starts at the beginning
  first_epoch_ = extents_->super().epoch + 1;
  const bool was_killed = extents_->found() == FoundState::kKilled;
  if (was_killed) first_epoch_ = std::max(first_epoch_, extents_->LoadLive(&format::LiveState::epoch) + 1);
  UseEpoch(first_epoch_ + was_killed);
}

template <File FileT>
void RecordHeap<FileT>::UseEpoch(std::uint64_t epoch) {
  using format::BlockState;
  std::uint64_t bits = 0;
  for (const BlockState state : {BlockState::kFree, BlockState::kLive, BlockState::kUnborn}) {
    bits = bits << 16 | format::Stamp::Of(state, epoch).bits();
  }
  epoch_.store(epoch, std::memory_order_seq_cst);
  stamps_.store(bits, std::memory_order_seq_cst);
}

template <File FileT>
StatusOr<std::unique_ptr<RecordHeap<FileT>>> RecordHeap<FileT>::Open(std::unique_ptr<ExtentFile<FileT>> extents,
                                                                     std::uint64_t min_read_size) {
  std::unique_ptr<RecordHeap> self(new RecordHeap(std::move(extents), min_read_size));
  const auto begins_at = [](const void* heap, std::uint64_t offset) {
    const StatusOr<std::uint64_t> bytes = static_cast<const RecordHeap*>(heap)->extents_->HeapExtentBytes(offset);
    return bytes.ok() && *bytes != 0;
  };
  HAKO_ASSIGN_OR_RETURN(self->pool_, FreeBlockPool::Create(self->shift_, {begins_at, self.get()}));
  if constexpr (!kMapped) HAKO_RETURN_IF_ERROR(self->UseIndexArena());
  return self;
}

template <File FileT>
Status RecordHeap<FileT>::UseIndexArena() {
  HAKO_ASSIGN_OR_RETURN(index_arena_, IndexArena::Create());
  index_bytes_.store(0, std::memory_order_relaxed);
  extents_->ForgetIndexExtents();
  set_num_index_extents(0);
  return absl::OkStatus();
}

// ---- reading ----

template <File FileT>
typename RecordHeap<FileT>::Head RecordHeap<FileT>::DecodeHead(const char* bytes, std::size_t size) {
  Head head;
  std::uint16_t stamp;
  std::memcpy(&head.check, bytes, sizeof(head.check));
  std::memcpy(&stamp, bytes + 4, sizeof(stamp));
  head.stamp = format::Stamp(stamp);
  head.lengths = format::DecodeLengths(bytes + kFixed, size - kFixed);
  return head;
}

template <File FileT>
HAKO_INLINE typename RecordHeap<FileT>::Head RecordHeap<FileT>::HeadOf(std::uint64_t offset) const {
  const char* shared = base_ + offset;
  const std::uint64_t word = sync::LoadSharedWord(shared);
  if ((word & 0x8080'0000'0000'0000u) == 0) [[likely]] {
    return {static_cast<std::uint32_t>(word),
            format::Stamp(static_cast<std::uint16_t>(word >> 32)),
            {2, (word >> 48) & 127, (word >> 56) & 127}};
  }
  if (offset + kHeadMax > extents_->tail()) return {};  // too close to the end for long lengths
  char bytes[kHeadMax];
  sync::LoadShared(bytes, shared, sizeof(bytes));
  return DecodeHead(bytes, sizeof(bytes));
}

template <File FileT>
Match RecordHeap<FileT>::ReadRecord(std::uint32_t handle, Head* head, const char** bytes, Status* status) const {
  const std::uint64_t offset = OffsetOf(handle);
  if (!IsPlace(offset)) return Match::kDamaged;
  ScratchBuffer& buffer = ThreadScratch<RecordHeap>::Get();
  buffer.Trim();
  const auto failed = [status](const Status& read) {
    if (status != nullptr) *status = read;
    return !read.ok();
  };
  // Extends the buffer from the first `had` to `size` bytes of the record.
  const auto read_rest = [&](std::uint64_t had, std::uint64_t size) {
    char* const out = buffer.Take(size, had);
    return !failed(out == nullptr ? NoMemoryError() : extents_->Read(offset + had, out + had, size - had));
  };
  std::span<const std::byte> ready;
  if constexpr (kReadsAhead) ready = Ahead::Take(&extents_->file(), handle);
  const std::uint64_t first = ready.empty() ? FirstRead(offset) : ready.size();
  if (ready.empty() && !read_rest(0, first)) return Match::kFailed;
  *bytes = ready.empty() ? buffer.data() : reinterpret_cast<const char*>(ready.data());
  *head = DecodeHead(*bytes, std::min(first, kHeadMax));
  if (!IsInside(offset, *head)) return Match::kDamaged;
  guess_.Note(head->size());
  if (head->size() > first) {
    second_reads_.fetch_add(1, std::memory_order_relaxed);
    if (!ready.empty()) {
      char* const out = buffer.Take(first);
      if (out == nullptr) return failed(NoMemoryError()), Match::kFailed;
      std::memcpy(out, ready.data(), first);
    }
    if (!read_rest(first, head->size())) return Match::kFailed;
    *bytes = buffer.data();
  }
  return Match::kYes;
}

template <File FileT>
HAKO_INLINE Match RecordHeap<FileT>::Load(std::uint32_t handle, Head* head, const char** bytes) const {
  if constexpr (kMapped) {
    const std::uint64_t offset = OffsetOf(handle);
    if (!IsPlace(offset)) return Match::kDamaged;
    *bytes = base_ + offset;
    *head = HeadOf(offset);
    return IsInside(offset, *head) ? Match::kYes : Match::kDamaged;
  } else {
    return ReadRecord(handle, head, bytes, nullptr);
  }
}

template <File FileT>
template <class S>
HAKO_INLINE bool RecordHeap<FileT>::TryFetchShort(std::uint32_t handle, std::uint64_t key_hash, std::string_view key, S& sink) const {
  if constexpr (kMapped) {
    const std::uint64_t offset = OffsetOf(handle);
    std::uint64_t word;
    if (!LoadShortHead(offset, key.size(), &word)) [[unlikely]]
      return false;
    const char* const at = base_ + offset + format::kShortHead;
    if (!sync::EqualShared(at, key.data(), key.size())) [[unlikely]]
      return false;
    const auto size = static_cast<std::size_t>(word >> 56);
    char* const out = sink(size);
    if (out == nullptr) return true;
    sync::LoadShared(out, at + key.size(), size);
    return static_cast<std::uint32_t>(word) == CheckOf({sync::SharedOrCopy(at + key.size(), out), size}, key_hash, offset);
  }
  return false;
}

template <File FileT>
template <class S, class C>
Match RecordHeap<FileT>::TryFetch(std::uint32_t handle, std::string_view key, S& sink, const C& is_current, FetchedCopy& copy) const {
  Head head;
  const char* at = nullptr;
  if constexpr (kMapped) {
    const std::uint64_t offset = OffsetOf(handle);
    if (!IsPlace(offset)) return Match::kDamaged;
    at = base_ + offset;
    head = HeadOf(offset);
    if (head.lengths.key_size != key.size()) return Match::kNo;
    if (!IsInside(offset, head) || !IsAlive(head)) return Match::kDamaged;
    if (!sync::EqualShared(at + head.key_at(), key.data(), key.size())) return Match::kNo;
    if (head.lengths.value_size > kOptimisticValueMax && !is_current()) return Match::kDamaged;
  } else {
    if (const Match match = ReadRecord(handle, &head, &at, nullptr); match != Match::kYes) return match;
    if (head.lengths.key_size != key.size() || !sync::EqualBytes(at + head.key_at(), key.data(), key.size())) return Match::kNo;
    if (!is_current() || !IsAlive(head)) return Match::kDamaged;
  }
  copy.place = OffsetOf(handle);
  copy.check = head.check;
  copy.key_size = head.lengths.key_size;
  copy.value_size = head.lengths.value_size;
  if (char* out = sink(static_cast<std::size_t>(copy.value_size))) {
    sync::LoadShared(out, at + head.key_at() + copy.key_size, static_cast<std::size_t>(copy.value_size));
    copy.value = out;
  }
  return Match::kYes;
}

template <File FileT>
template <class C, class B>
HAKO_INLINE Match RecordHeap<FileT>::CopyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const {
  if constexpr (kMapped) {
    const std::uint64_t offset = OffsetOf(handle);
    std::uint64_t word;
    if (LoadShortHead(offset, &word)) [[likely]] {
      const std::uint64_t key_size = word >> 48 & 127, value_size = word >> 56;
      const char* const at = base_ + offset + format::kShortHead;
      char* const out = buffer.Take(static_cast<std::size_t>(key_size + value_size));
      sync::LoadShared(out, at, static_cast<std::size_t>(key_size + value_size));
      *copy = {out, key_size, value_size};
      return static_cast<std::uint32_t>(word) == CheckOf(copy->value(), KeyHash(copy->key()), offset) ? Match::kYes : Match::kDamaged;
    }
  }
  return CopyAnyRecord(handle, is_current, buffer, copy);
}

template <File FileT>
template <class C, class B>
Match RecordHeap<FileT>::CopyAnyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const {
  Head head;
  const char* at = nullptr;
  if (const Match match = Load(handle, &head, &at); match != Match::kYes) return match;
  if (!IsAlive(head)) return Match::kDamaged;
  const auto size = static_cast<std::size_t>(head.lengths.key_size + head.lengths.value_size);
  if (size > kOptimisticValueMax && !is_current()) return Match::kDamaged;
  char* const out = buffer.Take(size);
  sync::LoadShared(out, at + head.key_at(), size);
  *copy = {out, head.lengths.key_size, head.lengths.value_size};
  return head.check == CheckOf(copy->value(), KeyHash(copy->key()), OffsetOf(handle)) ? Match::kYes : Match::kDamaged;
}

template <File FileT>
Match RecordHeap<FileT>::MatchKey(std::uint32_t handle, std::string_view key, format::Lengths* lengths) const {
  Head head;
  const char* at = nullptr;
  if (const Match match = Load(handle, &head, &at); match != Match::kYes) return match;
  if (head.lengths.key_size != key.size()) return Match::kNo;
  *lengths = head.lengths;
  return sync::EqualShared(at + head.key_at(), key.data(), key.size()) ? Match::kYes : Match::kNo;
}

template <File FileT>
StatusOr<RecordView> RecordHeap<FileT>::View(WriterState&, std::uint32_t handle) const {
  RecordView record;
  if (!IsIntact(handle, &record)) return DamageAt(handle);
  return record;
}

template <File FileT>
bool RecordHeap<FileT>::IsIntact(std::uint32_t handle, RecordView* record) const {
  Head head;
  const char* at = nullptr;
  if (Load(handle, &head, &at) != Match::kYes || !IsAlive(head)) return false;
  *record = {{at + head.key_at(), head.lengths.key_size}, {at + head.key_at() + head.lengths.key_size, head.lengths.value_size}};
  return head.check == CheckOf(record->value, KeyHash(record->key), OffsetOf(handle));
}

template <File FileT>
Status RecordHeap<FileT>::DamageAt(std::uint32_t handle) const {
  if constexpr (!kMapped) {  // the device may have failed, perhaps only briefly
    Head head;
    const char* at = nullptr;
    Status status;
    if (ReadRecord(handle, &head, &at, &status) == Match::kFailed) return status;
    RecordView record;
    if (IsIntact(handle, &record))
      return absl::UnavailableError(absl::StrCat("a read of the record at offset ", OffsetOf(handle), " failed, but succeeds now"));
  }
  return DataLossError("a record fails its checksum", OffsetOf(handle));
}

// ---- writing ----

template <File FileT>
std::uint32_t RecordHeap<FileT>::Write(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value,
                                       Status* error) {
  if (value.size() > kValueSizeMax) [[unlikely]] {
    *error = TooLargeError("a value", value.size(), kValueSizeMax);
    return 0;
  }
  const unsigned size_class = ClassOf(key.size(), value.size());
  std::uint32_t handle = 0;
  if (pool_->IsSmall(size_class)) [[likely]]
    handle = TakeSmall(writer, size_class);
  if (handle == 0) handle = CarveSlowly(writer, size_class, error);
  if (handle == 0) [[unlikely]]
    return 0;
  *error = Put(writer, handle, fresh_stamp(), key_hash, key, value);
  return error->ok() ? handle : 0;
}

template <File FileT>
std::uint32_t RecordHeap<FileT>::WriteAhead(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value,
                                            Status* error) {
  if (value.size() > kValueSizeMax) {
    *error = TooLargeError("a value", value.size(), kValueSizeMax);
    return 0;
  }
  PaceLongWrite();
  const unsigned size_class = ClassOf(key.size(), value.size());
  const std::uint64_t bytes = BytesOf(size_class), most = bytes + place_unit_ - 1;
  for (;;) {
    gate_.Pass(writer);
    writer.ahead = pool_->TakeBlock(bytes, place_unit_);
    if (writer.ahead.bytes() == 0) HarvestSome(writer);
    if (writer.ahead.bytes() == 0) writer.ahead = pool_->TakeBlock(bytes, place_unit_);
    if (IndexHas(writer.ahead)) writer.ahead = {};
    writer.Leave();
    if (writer.ahead.bytes() != 0) break;
    *error = Grow(bytes, most);  // may take long: the file system allocates
    if (!error->ok()) return 0;
  }
  const std::uint32_t handle = HandleOf(writer.ahead.begin);
  *error = Put(writer, handle, stamps().unborn, key_hash, key, value);
  if (error->ok()) return handle;
  gate_.Pass(writer);
  writer.ahead = {};
  FreeBlock(writer, handle, key.size(), value.size());
  ReleaseFreed(writer);
  writer.Leave();
  return 0;
}

template <File FileT>
Status RecordHeap<FileT>::Put(WriterState& writer, std::uint32_t handle, format::Stamp stamp, std::uint64_t key_hash, std::string_view key,
                              std::string_view value) {
  const std::uint64_t offset = OffsetOf(handle);
  const std::uint32_t check = CheckOf(value, key_hash, offset);
  const std::uint16_t stamp_bits = stamp.bits();
  char head[format::kRecordHeadMax];
  std::memcpy(head, &check, sizeof(check));
  std::memcpy(head + 4, &stamp_bits, sizeof(stamp_bits));
  const unsigned lengths = format::EncodeLengths(head + kFixed, key.size(), value.size());
  const auto head_size = static_cast<std::size_t>(format::RecordHeadSize(lengths));
  const std::uint32_t head_check = format::RecordHeadCheck(check, key.size(), value.size(), offset, secret_);
  if (lengths > 2) std::memcpy(head + kFixed + lengths, &head_check, sizeof(head_check));
  if constexpr (kMapped) {
    char* at = base_ + offset;
    sync::StoreSharedHeader<8>(at, head, head_size);
    sync::StoreShared(at + head_size, key.data(), key.size());
    sync::StoreShared(at + head_size + key.size(), value.data(), value.size());
  } else {
    // Direct I/O writes the whole block, so that nothing has to be read first.
    const std::size_t used = head_size + key.size() + value.size();
    const std::size_t size = block_ > 1 ? static_cast<std::size_t>(BytesOf(ClassOf(key.size(), value.size()))) : used;
    const ScratchUse use(writer.write_buffer);
    char* const bytes = writer.write_buffer.Take(size);
    if (bytes == nullptr) return NoMemoryError();
    std::memcpy(bytes, head, head_size);
    sync::CopyBytes(bytes + head_size, key.data(), key.size());
    sync::CopyBytes(bytes + head_size + key.size(), value.data(), value.size());
    std::memset(bytes + used, 0, size - used);
    if (Status status = extents_->Write(offset, {bytes, size}); !status.ok()) {
      Poison(status);
      return status;
    }
  }
  return absl::OkStatus();
}

template <File FileT>
HAKO_INLINE format::Stamp RecordHeap<FileT>::LoadStamp(std::uint32_t handle, Status* status) const {
  std::uint16_t bits = 0;
  if constexpr (kMapped) {
    auto& word = *reinterpret_cast<std::uint16_t*>(base_ + OffsetOf(handle) + 4);
    bits = std::atomic_ref(word).load(std::memory_order_relaxed);
  } else {
    Status read = extents_->Read(OffsetOf(handle) + 4, reinterpret_cast<char*>(&bits), sizeof(bits));
    if (status != nullptr) *status = std::move(read);
  }
  return format::Stamp(bits);
}

template <File FileT>
HAKO_INLINE void RecordHeap<FileT>::StoreStamp(std::uint32_t handle, format::Stamp stamp) {
  std::uint16_t bits = stamp.bits();
  if constexpr (kMapped) {
    auto& word = *reinterpret_cast<std::uint16_t*>(base_ + OffsetOf(handle) + 4);
    std::atomic_ref(word).store(bits, std::memory_order_release);
  } else if (AcceptsWrites()) {
    Status status = extents_->Write(OffsetOf(handle) + 4, {reinterpret_cast<const char*>(&bits), sizeof(bits)});
    if (!status.ok()) Poison(status);
  }
}

// ---- short records ----

template <File FileT>
HAKO_INLINE bool RecordHeap<FileT>::MatchShort(std::uint32_t handle, std::string_view key, std::uint64_t* head) const {
  if constexpr (!kMapped) return false;
  const std::uint64_t offset = OffsetOf(handle);
  return LoadShortHead(offset, key.size(), head) && sync::EqualShared(base_ + offset + format::kShortHead, key.data(), key.size());
}

template <File FileT>
HAKO_INLINE std::optional<std::string_view> RecordHeap<FileT>::ViewShort(std::uint32_t handle, std::uint64_t head,
                                                                         std::uint64_t key_hash) const {
  const std::uint64_t offset = OffsetOf(handle);
  const std::string_view value(base_ + offset + format::kShortHead + KeySizeOf(head), ValueSizeOf(head));
  if (static_cast<std::uint32_t>(head) != CheckOf(value, key_hash, offset)) [[unlikely]]
    return std::nullopt;
  return value;
}

template <File FileT>
std::uint32_t RecordHeap<FileT>::WriteShort(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value) {
  if constexpr (!kMapped) return 0;
  if ((key.size() | value.size()) >= format::kShortLength) [[unlikely]]
    return 0;
  const unsigned size_class = ShortClassOf(key.size(), value.size());
  const std::uint32_t handle = TakeSmall(writer, size_class);
  if (handle == 0) [[unlikely]]
    return 0;
  const std::uint64_t offset = OffsetOf(handle);
  const std::uint64_t head = CheckOf(value, key_hash, offset) | std::uint64_t{stamps().unborn.bits()} << 32 |
                             std::uint64_t{key.size()} << 48 | std::uint64_t{value.size()} << 56;
  char* const at = base_ + offset;
  sync::StoreShared(at, reinterpret_cast<const char*>(&head), sizeof(head));
  sync::StoreShared(at + format::kShortHead, key.data(), key.size());
  sync::StoreShared(at + format::kShortHead + key.size(), value.data(), value.size());
  return handle;
}

template <File FileT>
HAKO_INLINE void RecordHeap<FileT>::RetireShort(WriterState& writer, std::uint32_t handle, std::uint64_t head) {
  if (static_cast<std::uint16_t>(head >> 32) != stamps().live.bits() || evacuating_.load(std::memory_order_relaxed)) [[unlikely]]
    return Retire(writer, handle, {2, KeySizeOf(head), ValueSizeOf(head)});
  StoreStamp(handle, stamps().free);
  pool_->Push(writer.free, ShortClassOf(KeySizeOf(head), ValueSizeOf(head)), handle);
}

template <File FileT>
void RecordHeap<FileT>::Revive(std::uint32_t handle) {
  if (!IsPlace(OffsetOf(handle))) return;
  Status status;
  const format::Stamp stamp = LoadStamp(handle, &status);
  if (!status.ok()) return StopAt(status);
  Revive(handle, stamp);
}

template <File FileT>
void RecordHeap<FileT>::Revive(std::uint32_t handle, format::Stamp stamp) {
  if (!stamp.IsLive()) StoreStamp(handle, format::Revive(stamp, {epochs().durable, first_epoch_}));
}

template <File FileT>
void RecordHeap<FileT>::Retire(WriterState& writer, std::uint32_t handle, const format::Lengths& lengths) {
  Status status;
  const format::Stamp stamp = LoadStamp(handle, &status);
  if (!status.ok()) return StopAt(status);
  if (stamp.bits() == stamps().live.bits()) return FreeBlock(writer, handle, lengths.key_size, lengths.value_size);
  StoreStamp(handle, format::Retire(stamp, epochs()));
  Wait(writer, handle, lengths.key_size, lengths.value_size);
}

template <File FileT>
void RecordHeap<FileT>::Retire(WriterState& writer, std::uint32_t handle) {
  Head head;
  const char* at = nullptr;
  const Match match = Load(handle, &head, &at);
  if (match == Match::kYes) Retire(writer, handle, head.lengths);
  if (match == Match::kFailed) StopAt(DamageAt(handle));
}

template <File FileT>
HAKO_INLINE void RecordHeap<FileT>::FreeBlock(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size) {
  StoreStamp(handle, stamps().free);
  const unsigned size_class = ClassOf(key_size, value_size);
  if (pool_->IsSmall(size_class)) [[likely]]
    return FreeStamped(writer, handle, size_class);
  ReleaseFreed(writer);
  writer.freed = handle;
  writer.freed_class = size_class;
}

template <File FileT>
HAKO_INLINE void RecordHeap<FileT>::FreeStamped(WriterState& writer, std::uint32_t handle, unsigned size_class) {
  if (evacuating_.load(std::memory_order_relaxed) && IsVictim(handle)) [[unlikely]]
    return ForgetBlock(handle, size_class);
  const Run run = pool_->FreeBlock(writer.free, size_class, handle);
  if (run.bytes() >= kLarge) [[unlikely]]
    ReleaseIfExtent(run);
}

template <File FileT>
void RecordHeap<FileT>::ForgetBlock(std::uint32_t handle, unsigned size_class) {
  std::lock_guard lock(forgotten_mutex_);
  forgotten_.push_back({OffsetOf(handle), OffsetOf(handle) + BytesOf(size_class)});
}

// The stamp of a record that an entry stops or starts naming could not be read, so its next stamp
// is unknown. If a state became durable with the old one, it would have a record too many or too
// few.
template <File FileT>
void RecordHeap<FileT>::StopAt(const Status& unread) {
  if (AcceptsWrites()) Poison(unread);
}

template <File FileT>
void RecordHeap<FileT>::Poison(const Status& why) {
  refusal_.Set(NoMoreWritesError(why));
}

}  // namespace hako::hash
