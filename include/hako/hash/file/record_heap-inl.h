// Definitions of hash/file/record_heap.h: a record from its first write to its end.
#pragma once

#include "hako/hash/file/record_heap.h"

namespace hako::hash {

template <File FileT>
RecordHeap<FileT>::RecordHeap(std::unique_ptr<ExtentFile<FileT>> extents, std::unique_ptr<FreeBlockPool> pool, std::uint64_t min_read_size)
    : Records(std::move(extents), min_read_size),
      HeapIndex<FileT>(*extents_),
      pool_(std::move(pool)),
      victims_(*pool_, shift_),
      first_epoch_(FirstEpoch()),
      harvest_(*this, victims_, first_epoch_),
      sweep_(*this),
      heap_extents_(*this, *pool_, this->IsDirect()) {
  this->UseEpoch(first_epoch_ + (extents_->found() == FoundState::kKilled));
}

template <File FileT>
StatusOr<std::unique_ptr<RecordHeap<FileT>>> RecordHeap<FileT>::Open(std::unique_ptr<ExtentFile<FileT>> extents,
                                                                     std::uint64_t min_read_size) {
  const auto begins_at = [](const void* file, std::uint64_t offset) {
    const StatusOr<std::uint64_t> bytes = static_cast<const ExtentFile<FileT>*>(file)->HeapExtentBytes(offset);
    return bytes.ok() && *bytes != 0;
  };
  HAKO_ASSIGN_OR_RETURN(std::unique_ptr<FreeBlockPool> pool,
                        FreeBlockPool::Create(std::uint32_t{extents->super().align_pow}, {begins_at, extents.get()}));
  std::unique_ptr<RecordHeap> self(new RecordHeap(std::move(extents), std::move(pool), min_read_size));
  if constexpr (!kMapped) HAKO_RETURN_IF_ERROR(self->UseIndexArena());
  return self;
}

// ---- reading ----

template <File FileT>
template <class C, class B>
HAKO_INLINE Match RecordHeap<FileT>::CopyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const {
  if (const std::optional<Match> match = this->CopyShort(handle, buffer, copy)) [[likely]]
    return *match;
  return CopyAnyRecord(handle, is_current, buffer, copy);
}

template <File FileT>
template <class C, class B>
Match RecordHeap<FileT>::CopyAnyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const {
  Head head;
  const char* at = nullptr;
  if (const Match match = Load(handle, &head, &at); match != Match::kYes) return match;
  if (!this->MayBeNamed(head.stamp)) return Match::kDamaged;
  const auto size = static_cast<std::size_t>(head.lengths.key_size + head.lengths.value_size);
  if (size > Heap::kOptimisticValueMax && !is_current()) return Match::kDamaged;
  char* const out = buffer.Take(size);
  sync::LoadShared(out, at + head.key_at(), size);
  *copy = {out, head.lengths.key_size, head.lengths.value_size};
  return Heap::IsIntact(head, {copy->key(), copy->value()}, OffsetOf(handle)) ? Match::kYes : Match::kDamaged;
}

template <File FileT>
Match RecordHeap<FileT>::MatchKey(std::uint32_t handle, std::string_view key, format::Lengths* lengths) const {
  Head head;
  const char* at = nullptr;
  if (const Match match = Load(handle, &head, &at, Wanted::kKey); match != Match::kYes) return match;
  if (head.lengths.key_size != key.size()) return Match::kNo;
  *lengths = head.lengths;
  return sync::EqualShared(at + head.key_at(), key.data(), key.size()) ? Match::kYes : Match::kNo;
}

template <File FileT>
StatusOr<RecordView> RecordHeap<FileT>::View(WriterState&, std::uint32_t handle) const {
  RecordView record;
  if (!IsIntact(handle, &record)) return this->DamageAt(handle);
  return record;
}

template <File FileT>
bool RecordHeap<FileT>::IsIntact(std::uint32_t handle, RecordView* record) const {
  Head head;
  const char* at = nullptr;
  if (Load(handle, &head, &at) != Match::kYes || !this->MayBeNamed(head.stamp)) return false;
  *record = head.In(at);
  return Heap::IsIntact(head, *record, OffsetOf(handle));
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
  *error = this->Put(writer.write_buffer, handle, fresh_stamp(), key_hash, key, value);
  return error->ok() ? handle : 0;
}

template <File FileT>
template <class Value>
std::uint32_t RecordHeap<FileT>::WriteAhead(WriterState& writer, std::uint64_t key_hash, std::string_view key, Value&& value,
                                            Status* error) {
  if (value.size() > kValueSizeMax) {
    *error = TooLargeError("a value", value.size(), kValueSizeMax);
    return 0;
  }
  reclaimer_.Pace([this] { return AllLive(); });
  const std::uint64_t value_size = value.size();
  const unsigned size_class = ClassOf(key.size(), value_size);
  const std::uint64_t bytes = BytesOf(size_class), most = bytes + this->place_unit() - 1;
  for (;;) {
    gate_.Pass(writer);
    writer.ahead = pool_->TakeBlock(bytes, this->place_unit());
    if (writer.ahead.bytes() == 0) HarvestSome(writer);
    if (writer.ahead.bytes() == 0) writer.ahead = pool_->TakeBlock(bytes, this->place_unit());
    if (IndexHas(writer.ahead)) writer.ahead = {};
    writer.Leave();
    if (writer.ahead.bytes() != 0) break;
    *error = heap_extents_.Grow(bytes, most);  // may take long: the file system allocates
    if (!error->ok()) return 0;
  }
  const std::uint32_t handle = HandleOf(writer.ahead.begin);
  *error = this->Put(writer.write_buffer, handle, stamps().unborn, key_hash, key, value);
  if (error->ok()) return handle;
  gate_.Pass(writer);
  writer.ahead = {};
  FreeBlock(writer, handle, key.size(), value_size);
  ReleaseFreed(writer);
  writer.Leave();
  return 0;
}

template <File FileT>
StatusOr<std::uint32_t> RecordHeap<FileT>::Relocate(WriterState& mover, std::uint32_t handle) {
  HAKO_RETURN_IF_ERROR(Health());
  HAKO_ASSIGN_OR_RETURN(const RecordView record, View(mover, handle));
  const std::string key(record.key), value(record.value);
  Status error;
  const unsigned size_class = ClassOf(key.size(), value.size());
  std::uint32_t copy = pool_->IsSmall(size_class) ? Carve(mover, size_class) : 0;
  if (copy == 0) copy = CarveSlowly(mover, size_class, &error);
  if (copy == 0) return error;
  HAKO_RETURN_IF_ERROR(this->Put(mover.write_buffer, copy, fresh_stamp(), KeyHash(key), key, value));
  return copy;
}

template <File FileT>
StatusOr<typename RecordHeap<FileT>::LongRecord> RecordHeap<FileT>::FindLong(std::uint32_t handle) const {
  Head head;
  const char* at = nullptr;
  if (Load(handle, &head, &at, Wanted::kKey) != Match::kYes) return this->DamageAt(handle);
  std::string key(at + head.key_at(), static_cast<std::size_t>(head.lengths.key_size));
  auto value = this->ValueOf(handle, key, head, at);
  return LongRecord{std::move(key), std::move(value)};
}

// ---- short records ----

template <File FileT>
std::uint32_t RecordHeap<FileT>::WriteShort(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value) {
  if (!kMapped || (key.size() | value.size()) >= format::kShortLength) [[unlikely]]
    return 0;
  const std::uint32_t handle = TakeSmall(writer, this->ShortClassOf(key.size(), value.size()));
  if (handle != 0) [[likely]]
    this->PutShort(handle, key_hash, key, value);
  return handle;
}

template <File FileT>
HAKO_INLINE void RecordHeap<FileT>::RetireShort(WriterState& writer, std::uint32_t handle, std::uint64_t head) {
  if (static_cast<std::uint16_t>(head >> 32) != stamps().live.bits() || victims_.IsOn()) [[unlikely]]
    return Retire(writer, handle, {2, Records::KeySizeOf(head), Records::ValueSizeOf(head)});
  StoreStamp(handle, stamps().free);
  pool_->Push(writer.free, this->ShortClassOf(Records::KeySizeOf(head), Records::ValueSizeOf(head)), handle);
}

template <File FileT>
void RecordHeap<FileT>::Revive(std::uint32_t handle) {
  if (!IsPlace(OffsetOf(handle))) return;
  Status status;
  const format::Stamp stamp = LoadStamp(handle, &status);
  if (!status.ok()) return this->StopAt(status);
  Revive(handle, stamp);
}

template <File FileT>
void RecordHeap<FileT>::Wait(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size) {
  const unsigned size_class = ClassOf(key_size, value_size);
  pool_->Push(writer.free, FreeBlockPool::kWaiting + size_class, handle);
  writer.waiting_bytes += BytesOf(size_class);
  if (!pool_->IsSmall(size_class)) [[unlikely]]
    WaitLarge(BytesOf(size_class));
}

template <File FileT>
void RecordHeap<FileT>::Retire(WriterState& writer, std::uint32_t handle, const format::Lengths& lengths) {
  Status status;
  const format::Stamp stamp = LoadStamp(handle, &status);
  if (!status.ok()) return this->StopAt(status);
  if (stamp.bits() == stamps().live.bits()) return FreeBlock(writer, handle, lengths.key_size, lengths.value_size);
  StoreStamp(handle, format::Retire(stamp, epochs()));
  Wait(writer, handle, lengths.key_size, lengths.value_size);
}

template <File FileT>
void RecordHeap<FileT>::Retire(WriterState& writer, std::uint32_t handle) {
  Head head;
  const char* at = nullptr;
  const Match match = Load(handle, &head, &at, Wanted::kKey);
  if (match == Match::kYes) Retire(writer, handle, head.lengths);
  if (match == Match::kFailed) this->StopAt(this->DamageAt(handle));
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
  if (victims_.IsOn() && victims_.HoldBlock(handle, size_class)) [[unlikely]]
    return;
  const Run run = pool_->FreeBlock(writer.free, size_class, handle);
  if (run.bytes() >= HeapExtents<FileT>::kLarge) [[unlikely]]
    heap_extents_.ReturnIfFree(run);
}

// The block of an intent need not be freed here: it is unborn, so the harvest finds it.
template <File FileT>
template <class Complete>
Status RecordHeap<FileT>::CompleteIntents(Complete&& complete) {
  if constexpr (kMapped) {
    for (unsigned i = 0; i < format::kIntentWords; ++i) {
      const std::uint64_t handle = extents_->IntentWord(i).load(std::memory_order_acquire);
      if (handle == 0) continue;
      HAKO_ASSIGN_OR_RETURN(const std::vector<format::IntentEntry> entries, this->LoadIntent(handle));
      HAKO_RETURN_IF_ERROR(complete(std::span(entries)));
      this->EndIntent(i);
    }
  }
  return absl::OkStatus();
}

}  // namespace hako::hash
