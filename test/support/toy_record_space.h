// A RecordSpace that is too simple to be wrong: records in a std::map, buckets in a vector. The
// bucket index is tested on it alone, without an allocator, a file or stamps.
//
// It has exactly what the concept asks for, so an index that compiles with it uses nothing else. It
// checks the calls: a record is written, committed, retired and released in this order, and a
// handle is never used again, so that a stale one is noticed. It fails on request, and can be
// copied in the middle of an operation, as a process kill leaves a file.
//
// One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hako/base/function_ref.h"
#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/format/intent_format.h"
#include "hako/hash/record_space.h"

namespace hako {

template <bool kInPlace>
class ToyRecordSpace {
 public:
  static constexpr bool kOverwrites = kInPlace;
  static constexpr bool kReadsAhead = false;
  struct Ahead {};
  struct WriterState : sync::WriterState {};

  // The content of the space: copied by a test that kills the process.
  enum class Use { kUnborn, kAhead, kLive, kRetired };
  struct Record {
    std::string key, value;
    Use use = Use::kUnborn;
    bool is_damaged = false;
  };
  struct Extent {
    std::uint64_t offset, bytes;
    hash::IndexExtent kind;
  };
  struct Content {
    std::map<std::uint32_t, Record> records;
    std::vector<format::BucketLine> lines;
    std::vector<Extent> extents;
    std::uint64_t line_count = 0;
    std::map<unsigned, std::uint32_t> intents;  // published ones, by word
  };

  // Buckets and overflow buckets together take at most `max_lines`.
  explicit ToyRecordSpace(std::uint64_t max_lines) { content_.lines.resize(kFirstLine + max_lines); }
  explicit ToyRecordSpace(Content content) : content_(std::move(content)) {
    if (!content_.records.empty()) last_handle_ = content_.records.rbegin()->first;
  }
  ToyRecordSpace(const ToyRecordSpace&) = delete;

  // Keys hash to values with these bits only. Records that are longer take the general path.
  std::uint64_t hash_mask = ~std::uint64_t{0};
  std::size_t short_max = 16;
  // The allocation with this number fails; all later ones too if `refuses_on`.
  std::uint64_t refused = ~std::uint64_t{0};
  bool refuses_on = false;
  std::uint64_t allocations = 0;
  // Called before and after each change of the space.
  std::function<void()> on_change;

  const Content& content() const { return content_; }
  std::size_t num_records() const { return content_.records.size(); }
  Record& At(std::uint32_t handle) {
    const auto it = content_.records.find(handle);
    if (it != content_.records.end()) return it->second;
    ADD_FAILURE() << "record " << handle << " is used and does not exist";
    return nowhere_;
  }
  // After an operation: every record is live.
  void ExpectAllLive() {
    std::erase_if(content_.records, [this](const auto& each) { return each.second.use == Use::kRetired && is_short_retired_; });
    is_short_retired_ = false;
    for (const auto& [handle, record] : content_.records) EXPECT_EQ(record.use, Use::kLive) << handle << ": " << record.key;
  }
  // After a kill: records that no bucket names are free space.
  template <class Handles>
  void DropAllBut(const Handles& named) {
    std::erase_if(content_.records, [&named](const auto& each) { return !named.contains(each.first); });
    for (auto& [handle, record] : content_.records) record.use = Use::kLive;
  }
  static Status Refusal() { return absl::ResourceExhaustedError("the toy refuses"); }

  sync::WriteGate& gate() { return gate_; }

  StatusOr<std::uint64_t> AllocateIndexExtent(std::uint64_t bytes, hash::IndexExtent kind) {
    if (Refuses()) return Refusal();
    const std::uint64_t offset = index_end();
    if (offset + bytes > content_.lines.size() * sizeof(format::BucketLine)) return absl::ResourceExhaustedError("the toy is full");
    Change([&] { content_.extents.push_back({offset, bytes, kind}); });
    return offset;
  }
  std::byte* index_base() { return reinterpret_cast<std::byte*>(content_.lines.data()); }
  std::uint64_t index_end() {
    const auto& extents = content_.extents;
    return extents.empty() ? kFirstLine * sizeof(format::BucketLine) : extents.back().offset + extents.back().bytes;
  }
  void StoreLineCount(std::uint64_t n) {
    Change([&] { content_.line_count = n; });
  }

  void Prefetch(std::uint32_t) {}
  void PrefetchRest(std::uint32_t) {}
  bool TryFetchShort(std::uint32_t handle, std::uint64_t hash, std::string_view key, FunctionRef<char*(std::size_t)> sink) {
    const Record& record = At(handle);
    EXPECT_EQ(hash, KeyHash(key));
    if (!IsShort(record) || record.is_damaged || record.key != key) return false;
    if (char* out = sink(record.value.size())) record.value.copy(out, record.value.size());
    return true;
  }
  hash::Match TryFetch(std::uint32_t handle, std::string_view key, FunctionRef<char*(std::size_t)> sink, FunctionRef<bool()>,
                       hash::FetchedCopy& copy) {
    const Record& record = At(handle);
    if (record.key != key) return hash::Match::kNo;
    if (char* out = sink(record.value.size())) record.value.copy(out, record.value.size());
    copy.place = handle;
    return hash::Match::kYes;
  }
  hash::Match CopyRecord(std::uint32_t handle, FunctionRef<bool()>, hash::CopyBuffer& buffer, hash::RecordCopy* copy) {
    const Record& record = At(handle);
    char* const out = buffer.Take(record.key.size() + record.value.size());
    record.value.copy(out + record.key.copy(out, record.key.size()), record.value.size());
    *copy = {out, record.key.size(), record.value.size()};
    return record.is_damaged ? hash::Match::kDamaged : hash::Match::kYes;
  }
  bool CopyIsIntact(const hash::FetchedCopy& copy, std::uint64_t) { return !At(static_cast<std::uint32_t>(copy.place)).is_damaged; }
  Status DamageAt(std::uint32_t handle) { return DataLossError("a damaged record", handle); }

  hash::Match MatchKey(std::uint32_t handle, std::string_view key, format::Lengths* lengths) {
    const Record& record = At(handle);
    *lengths = LengthsOf(record);
    return record.key == key ? hash::Match::kYes : hash::Match::kNo;
  }
  StatusOr<hash::RecordView> View(WriterState&, std::uint32_t handle) {
    const Record& record = At(handle);
    if (record.is_damaged) return DamageAt(handle);
    return hash::RecordView{record.key, record.value};
  }

  std::uint32_t Write(WriterState&, std::uint64_t hash, std::string_view key, std::string_view value, Status* error) {
    EXPECT_EQ(hash, KeyHash(key));
    return Add(key, value, Use::kUnborn, error);
  }
  std::uint32_t WriteAhead(WriterState& writer, std::uint64_t, std::string_view key, std::string_view value, Status* error) {
    EXPECT_FALSE(writer.busy.load());
    return Add(key, value, Use::kAhead, error);
  }
  Status EndAhead(WriterState& writer, std::uint32_t handle) {
    EXPECT_TRUE(writer.busy.load());
    EXPECT_EQ(At(handle).use, Use::kAhead);
    if (Refuses()) {
      content_.records.erase(handle);
      return Refusal();
    }
    At(handle).use = Use::kUnborn;
    return absl::OkStatus();
  }
  bool Overwrite(std::uint32_t handle, const format::Lengths& lengths, std::string_view key, std::string_view value) {
    Record& record = At(handle);
    EXPECT_EQ(record.use, Use::kLive);
    EXPECT_EQ(record.key, key);
    EXPECT_EQ(lengths.value_size, record.value.size());
    if (!kInPlace || value.size() != record.value.size()) return false;
    record.value.assign(value);
    return true;
  }
  void Commit(std::uint32_t handle) {
    EXPECT_EQ(At(handle).use, Use::kUnborn);
    Change([&] { At(handle).use = Use::kLive; });
  }
  void Revive(std::uint32_t handle) {
    Change([&] { At(handle).use = Use::kLive; });
  }
  void Retire(WriterState&, std::uint32_t handle, const format::Lengths& lengths) {
    Record& record = At(handle);
    EXPECT_EQ(record.use, Use::kLive);
    EXPECT_TRUE(lengths.key_size == record.key.size() && lengths.value_size == record.value.size());
    Change([&] { record.use = Use::kRetired; });
  }
  void ReleaseFreed(WriterState&) {
    Change([&] { std::erase_if(content_.records, [](const auto& each) { return each.second.use == Use::kRetired; }); });
  }

  // Intents, unless values are overwritten in place.
  unsigned PublishIntent(WriterState& writer, std::uint32_t handle, bool) requires(!kInPlace) {
    EXPECT_TRUE(writer.busy.load());
    EXPECT_EQ(At(handle).use, Use::kUnborn);
    EXPECT_TRUE(content_.intents.empty());
    Change([&] { content_.intents[kIntentWord] = handle; });
    return kIntentWord;
  }
  void EndIntent(unsigned word) {
    EXPECT_TRUE(content_.intents.contains(word));
    Change([&] { content_.intents.erase(word); });
  }
  void StampRetired(std::uint32_t handle) {
    EXPECT_EQ(At(handle).use, Use::kLive);
    EXPECT_FALSE(content_.intents.empty());
    Change([&] { At(handle).use = Use::kRetired; });
  }
  void FreeRetired(WriterState&, std::uint32_t handle, const format::Lengths& lengths) {
    const Record& record = At(handle);
    EXPECT_EQ(record.use, Use::kRetired);
    EXPECT_TRUE(lengths.key_size == record.key.size() && lengths.value_size == record.value.size());
    EXPECT_TRUE(content_.intents.empty()) << "an intent still names the block";
    Change([&] { content_.records.erase(handle); });
  }
  void RetireLate(std::uint32_t handle) {
    if (content_.records.contains(handle)) Change([&] { At(handle).use = Use::kRetired; });
  }
  // The entries of a published intent.
  std::vector<format::IntentEntry> LoadIntent(unsigned word) {
    const Record& record = At(content_.intents.at(word));
    EXPECT_EQ(record.use, Use::kUnborn);
    EXPECT_EQ(record.key, "");
    std::vector<format::IntentEntry> entries(record.value.size() / sizeof(format::IntentEntry));
    std::memcpy(entries.data(), record.value.data(), entries.size() * sizeof(entries[0]));
    return entries;
  }

  void NoteMove(std::uint32_t from, std::uint32_t to) {
    for (const std::uint32_t handle : {from, to}) EXPECT_TRUE(handle == 0 || content_.records.contains(handle)) << handle;
  }
  std::uint64_t KeyHash(std::string_view key) { return Hash64(key, 1) & hash_mask; }

  bool MatchShort(std::uint32_t handle, std::string_view key, std::uint64_t* head) {
    const Record& record = At(handle);
    *head = HeadOf(handle);
    return IsShort(record) && !record.is_damaged && record.key == key;
  }
  std::optional<std::string_view> ViewShort(std::uint32_t handle, std::uint64_t head, std::uint64_t) {
    EXPECT_EQ(head, HeadOf(handle));
    return At(handle).value;
  }
  std::uint32_t WriteShort(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value) {
    EXPECT_TRUE(writer.busy.load());
    EXPECT_EQ(hash, KeyHash(key));
    Status error;
    return key.size() + value.size() > short_max ? 0 : Add(key, value, Use::kUnborn, &error);
  }
  void GiveBack(WriterState&, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size) {
    const Record& record = At(handle);
    EXPECT_EQ(record.use, Use::kUnborn);
    EXPECT_TRUE(key_size == record.key.size() && value_size == record.value.size());
    content_.records.erase(handle);
  }
  bool OverwriteShort(std::uint32_t handle, std::uint64_t head, std::string_view value) {
    EXPECT_EQ(head, HeadOf(handle));
    return Overwrite(handle, LengthsOf(At(handle)), At(handle).key, value);
  }
  void RetireShort(WriterState& writer, std::uint32_t handle, std::uint64_t head) {
    EXPECT_EQ(head, HeadOf(handle));
    Retire(writer, handle, LengthsOf(At(handle)));
    is_short_retired_ = true;  // no ReleaseFreed follows
  }

 private:
  static constexpr std::uint64_t kFirstLine = 1024;  // 64 KiB: no overflow bucket has id 0

  static constexpr unsigned kIntentWord = 5;

  static std::uint64_t HeadOf(std::uint32_t handle) { return std::uint64_t{handle} << 32 | 0x5ead; }
  static format::Lengths LengthsOf(const Record& record) {
    return {format::LengthsSize(record.key.size(), record.value.size()), record.key.size(), record.value.size()};
  }
  bool IsShort(const Record& record) const { return record.key.size() + record.value.size() <= short_max; }
  bool Refuses() {
    const std::uint64_t number = allocations++;
    return number == refused || (refuses_on && number > refused);
  }
  std::uint32_t Add(std::string_view key, std::string_view value, Use use, Status* error) {
    if (Refuses()) {
      *error = Refusal();
      return 0;
    }
    Change([&] { content_.records[++last_handle_] = {std::string(key), std::string(value), use}; });
    return last_handle_;
  }
  template <class F>
  void Change(F&& change) {
    if (on_change) on_change();
    change();
    if (on_change) on_change();
  }

  Content content_;
  Record nowhere_;
  std::uint32_t last_handle_ = 0;
  bool is_short_retired_ = false;
  sync::WriteGate gate_;
};

static_assert(hash::IntentSpace<ToyRecordSpace<false>>);
static_assert(hash::RecordSpace<ToyRecordSpace<true>> && !hash::IntentSpace<ToyRecordSpace<true>>);

}  // namespace hako
