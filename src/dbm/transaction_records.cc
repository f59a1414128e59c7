#include "hako/dbm/transaction_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "hako/base/assert.h"
#include "hako/base/hash.h"
#include "hako/base/key_value.h"
#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/dbm/write_batch.h"

namespace hako::internal {

char* ByteArena::Take(std::size_t size) {
  if (size > left_) {
    const std::size_t block = std::max(size, block_size_);
    if (blocks_.empty()) first_size_ = block;
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(block));
    next_ = blocks_.back().get();
    left_ = block;
    block_size_ = std::min(2 * block_size_, kMost);
  }
  left_ -= size;
  size_ += size;
  return std::exchange(next_, next_ + size);
}

std::string_view ByteArena::Copy(std::string_view bytes) {
  if (bytes.empty()) return {};
  char* const copy = Take(bytes.size());
  std::memcpy(copy, bytes.data(), bytes.size());
  return {copy, bytes.size()};
}

void ByteArena::Clear() {
  const bool keeps_first = !blocks_.empty() && first_size_ <= kMost;
  blocks_.resize(keeps_first ? 1 : 0);
  next_ = keeps_first ? blocks_[0].get() : nullptr;
  left_ = keeps_first ? first_size_ : 0;
  size_ = 0;
  block_size_ = kFirst;
}

RecordSum RecordSum::Of(std::string_view key, std::string_view value) {
  static const std::uint64_t seed = RandomSeed();
  const XXH128_hash_t of_key = XXH3_128bits_withSeed(key.data(), key.size(), seed);
  const XXH128_hash_t of_value = XXH3_128bits_withSeed(value.data(), value.size(), of_key.low64);
  return {of_value.low64, of_key.high64 ^ MixBits(of_value.high64), 1};
}

void TransactionRecords::ForgetParts() {
  for (const auto& part : parts_) part->Forget();
  std::erase_if(parts_, [](const auto& part) { return part.use_count() == 1; });
}

void TransactionRecords::Clear() {
  ForgetParts();
  ++number_;
  index_.clear();
  written_.clear();
  records_.clear();
  num_indexed_ = num_writes_ = 0;
  knows_written_ = false;
  undos_.clear();
  runs_.clear();
  run_bytes_ = 0;
  arena_.Clear();
}

Status TransactionRecords::CheckRoom(std::size_t bytes) const {
  const std::size_t taken = arena_.size() + run_bytes_;
  const std::size_t left = WriteBatch::kBytesMax - std::min(taken, WriteBatch::kBytesMax);
  return bytes <= left ? absl::OkStatus() : TooLargeError("a transaction", taken + bytes, WriteBatch::kBytesMax);
}

Status TransactionRecords::CheckCount() const {
  if (records_.size() + runs_.size() >= WriteBatch::kSizeMax)
    return absl::OutOfRangeError(absl::StrCat("a transaction of more than ", WriteBatch::kSizeMax, " records and ranges"));
  return absl::OkStatus();
}

std::optional<std::uint32_t> TransactionRecords::Find(std::string_view key) {
  if (records_.size() <= kFew) {
    for (std::uint32_t i = 0; i < records_.size(); ++i) {
      if (order_ != nullptr ? order_(records_[i].key, key) == 0 : records_[i].key == key) return i;
    }
    return std::nullopt;
  }
  while (num_indexed_ < records_.size()) {
    index_.insert(num_indexed_);
    ++num_indexed_;
  }
  const auto found = index_.find(key);
  return found != index_.end() ? std::optional(*found) : std::nullopt;
}

StatusOr<std::uint32_t> TransactionRecords::FindOrAdd(std::string_view key) {
  if (const std::optional<std::uint32_t> found = Find(key)) return *found;
  HAKO_RETURN_IF_ERROR(CheckCount());
  HAKO_RETURN_IF_ERROR(CheckRoom(key.size()));
  const std::string_view copy = arena_.Copy(key);
  records_.emplace_back().key = copy;
  return static_cast<std::uint32_t>(records_.size() - 1);
}

StatusOr<char*> TransactionRecords::RoomFor(std::size_t size) {
  HAKO_RETURN_IF_ERROR(CheckRoom(size));
  return arena_.Take(size);
}

Status TransactionRecords::Put(std::uint32_t record, std::string_view key, const Action& action, bool is_absent) {
  HAKO_DCHECK(action.kind() != Action::Kind::kKeep);
  Write write;
  write.kind = action.kind();
  if (action.kind() == Action::Kind::kSet) {
    const Write& before = records_[record].write;
    const bool keeps_spelling = before.kind == Action::Kind::kSet && !is_absent;
    const bool is_known = keeps_spelling || key == records_[record].key;
    HAKO_RETURN_IF_ERROR(CheckRoom(action.value().size() + (is_known ? 0 : key.size())));
    write.key = keeps_spelling ? before.key : is_known ? records_[record].key : arena_.Copy(key);
    write.renews = keeps_spelling ? before.renews : before.kind != Action::Kind::kKeep;
    write.value = arena_.Copy(action.value());
    write.expire_at = action.expire_at();
    if (write.expire_at == Expiry::kKeep && before.kind == Action::Kind::kSet)
      write.expire_at = is_absent ? Expiry::kNever : before.expire_at;
    if (write.expire_at == Expiry::kKeep && before.kind == Action::Kind::kRemove) write.expire_at = Expiry::kNever;
  }
  undos_.push_back({serial_ + 1, record, records_[record].write});
  HAKO_TRY { SetWrite(record, write); }
  HAKO_CATCH_NO_MEMORY({
    undos_.pop_back();
    return NoMemoryError();
  })
  ++serial_;
  return absl::OkStatus();
}

void TransactionRecords::SetWrite(std::uint32_t record, const Write& write) {
  const bool is_written = write.kind != Action::Kind::kKeep, was_written = records_[record].write.kind != Action::Kind::kKeep;
  if (knows_written_ && is_written) written_.insert(record);
  if (knows_written_ && !is_written) written_.erase(record);
  records_[record].write = write;
  num_writes_ += static_cast<std::uint32_t>(is_written) - static_cast<std::uint32_t>(was_written);
}

bool TransactionRecords::HasMoment(std::uint64_t moment) const {
  const auto found = std::ranges::lower_bound(undos_, moment, {}, &Undo::serial);
  return moment == 0 || (found != undos_.end() && found->serial == moment);
}

bool TransactionRecords::UndoTo(std::uint64_t moment) {
  const auto is_at = [moment](const Undo& undo) { return undo.serial == moment; };
  if (moment != 0 && std::find_if(undos_.rbegin(), undos_.rend(), is_at) == undos_.rend()) return false;
  for (; !undos_.empty() && undos_.back().serial != moment; undos_.pop_back()) {
    SetWrite(undos_.back().record, undos_.back().write);  // cannot fail: the record is in written_
  }
  return true;
}

const TransactionRecords::Record* TransactionRecords::NextWritten(std::optional<std::string_view> from, bool is_inclusive,
                                                                  bool is_upwards) {
  if (num_writes_ == 0) return nullptr;
  if (!knows_written_) {
    written_.clear();  // of a call that ran out of memory
    for (std::uint32_t i = 0; i < records_.size(); ++i) {
      if (records_[i].write.kind != Action::Kind::kKeep) written_.insert(i);
    }
    knows_written_ = true;
  }
  if (is_upwards) {
    const auto next = !from ? written_.begin() : is_inclusive ? written_.lower_bound(*from) : written_.upper_bound(*from);
    return next != written_.end() ? &records_[*next] : nullptr;
  }
  const auto end = !from ? written_.end() : is_inclusive ? written_.upper_bound(*from) : written_.lower_bound(*from);
  return end != written_.begin() ? &records_[*std::prev(end)] : nullptr;
}

StatusOr<std::size_t> TransactionRecords::AddRun(bool is_upwards, std::optional<std::string_view> from, bool is_inclusive) {
  HAKO_RETURN_IF_ERROR(CheckCount());
  HAKO_RETURN_IF_ERROR(CheckRoom(from ? from->size() : 0));
  Run run;
  run.is_upwards = is_upwards;
  run.is_inclusive = is_inclusive;
  if (from) run.from.emplace(*from);
  runs_.push_back(std::move(run));
  run_bytes_ += from ? from->size() : 0;
  return runs_.size() - 1;
}

Status TransactionRecords::SetLast(std::size_t run, std::string_view key) {
  std::optional<std::string>& last = runs_[run].last;
  const std::size_t before = last ? last->size() : 0;
  if (key.size() > before) HAKO_RETURN_IF_ERROR(CheckRoom(key.size() - before));
  if (last)
    last->assign(key);
  else
    last.emplace(key);
  run_bytes_ += key.size() - before;
  return absl::OkStatus();
}

Status TransactionRecords::SetEnd(std::size_t run, const std::optional<std::string>& bound) {
  const std::size_t size = bound ? bound->size() : 0;
  HAKO_RETURN_IF_ERROR(CheckRoom(size));
  runs_[run].bound = bound;
  runs_[run].has_end = true;
  run_bytes_ += size;
  return absl::OkStatus();
}

// One commit: its keys and ranges, and what it finds there. First come the ends of the runs upwards, because the ranges of
// a batch end before a key; then the records that were read or whose time is kept, then the others that are written.
class TransactionRecords::Validation {
  using RunOf = TransactionRecords::Run;

 public:
  Validation(const TransactionRecords& of, bool writes) : of_(of), writes_(writes) {
    for (const RunOf& run : of.runs_) AddRun(run);
    const auto keeps_time = [&](const Record& record) {
      return writes && record.write.kind == Action::Kind::kSet && record.write.expire_at == Expiry::kKeep;
    };
    for (const Record& record : of.records_) {
      if (record.seen != Seen::kNothing || keeps_time(record)) Add(record);
    }
    num_shown_ = keys_.size();
    for (const Record& record : of.records_) {
      const bool was_added = record.seen != Seen::kNothing || keeps_time(record);
      if (writes && !was_added && record.write.kind != Action::Kind::kKeep) Add(record);
    }
    std::ranges::sort(checks_, [&of](const RangeCheck& a, const RangeCheck& b) { return IsBelow(of, a.range, b.range); });
    for (const RangeCheck& check : checks_) Join(check.range);
  }
  Validation(const Validation&) = delete;

  Status Execute(Process process, std::string* conflict) {
    const auto visit = [this](std::size_t i, std::optional<std::string_view> value) { return Visit(i, value); };
    const auto show = [this](std::string_view key, std::string_view value) { Show(key, value); };
    const EachRef shows(show);
    Batch<Action> batch{keys_, MultiUpdateRef(visit), num_shown_};
    batch.shown_ranges = ranges_;
    batch.show = &shows;
    batch.is_read_only = !writes_;
    if (batch.IsEmpty()) return absl::OkStatus();
    Status status = process(batch, &expiry_shown_);
    if (status.ok() && keys_.empty()) CheckRanges();  // otherwise the first Visit has
    if (!conflict_) return status;
    conflict->assign(*conflict_);
    return ConflictError(*conflict);
  }

 private:
  struct RangeCheck {
    KeyRange range;
    RecordSum expected, found;
    bool leaves_out_from;
  };

  // A record that is removed and set again is there twice, because the new one may be spelled differently.
  void Add(const Record& record) {
    const bool sets = writes_ && record.write.kind == Action::Kind::kSet;
    const bool renews = sets && record.write.renews && of_.order_ != nullptr;
    for (const bool is_first : {true, false}) {
      if (is_first && !renews) continue;
      keys_.push_back(sets && !is_first ? record.write.key : record.key);
      records_.push_back(&record);
    }
  }
  void AddRun(const RunOf& run) {
    if (!run.last && !run.has_end) return;  // it has read nothing
    KeyRange range;
    RecordSum sum = run.before;
    if (run.is_upwards) {
      range.has_from = run.from.has_value();
      range.from = run.from ? *run.from : std::string_view();
      if (run.bound) range.to = *run.bound;
      if (!run.has_end) {
        range.to = *run.last;
        keys_.push_back(*run.last);
        ends_.push_back(&run);
      } else {
        sum.Add(run.at);
      }
    } else {
      sum.Add(run.at);
      range.has_from = !run.has_end || run.bound;
      if (range.has_from) range.from = run.has_end ? *run.bound : *run.last;
      if (run.from) range.to = *run.from;
    }
    if (range.has_from && range.to && of_.Compare(range.from, *range.to) >= 0) return;
    checks_.push_back({range, sum, {}, run.is_upwards && run.from && !run.is_inclusive});
  }
  static bool IsBelow(const TransactionRecords& of, const KeyRange& a, const KeyRange& b) {
    if (a.has_from && b.has_from) return of.Compare(a.from, b.from) < 0;
    return !a.has_from && b.has_from;
  }
  // Adds a range that does not begin before those that were added.
  void Join(const KeyRange& range) {
    if (ranges_.empty()) return ranges_.push_back(range);
    std::optional<std::string_view>& end = ranges_.back().to;
    if (end && range.has_from && of_.Compare(range.from, *end) > 0)
      ranges_.push_back(range);
    else if (end && (!range.to || of_.Compare(*range.to, *end) > 0))
      end = range.to;
  }

  // Records come in ascending order.
  void Show(std::string_view key, std::string_view value) {
    const auto begins = [&](const KeyRange& range) { return !range.has_from || of_.Compare(range.from, key) <= 0; };
    while (next_ < checks_.size() && begins(checks_[next_].range)) begun_.push_back(next_++);
    std::erase_if(begun_, [&](std::size_t i) { return checks_[i].range.to && of_.Compare(*checks_[i].range.to, key) <= 0; });
    const RecordSum record = RecordSum::Of(key, value);
    for (const std::size_t i : begun_) {
      if (!checks_[i].leaves_out_from || of_.Compare(checks_[i].range.from, key) != 0) checks_[i].found.Add(record);
    }
  }
  bool CheckRanges() {
    for (const RangeCheck& check : checks_) {
      if (check.expected == check.found) continue;
      conflict_ = check.range.has_from ? check.range.from : check.range.to.value_or(std::string_view());
      return false;
    }
    return true;
  }
  std::optional<Action> Visit(std::size_t i, std::optional<std::string_view> value) {
    if (i == 0 && !CheckRanges()) return std::nullopt;
    if (i < ends_.size()) {
      const RecordSum found = value ? RecordSum::Of(*ends_[i]->last, *value) : RecordSum();
      if (found == ends_[i]->at) return Action::Keep();
      conflict_ = keys_[i];
      return std::nullopt;
    }
    const std::size_t at = i - ends_.size();
    const Record& record = *records_[at];
    const bool is_second = at != 0 && records_[at - 1] == &record;
    if (i < num_shown_ && !is_second && !Holds(record, value)) {
      conflict_ = record.key;
      return std::nullopt;
    }
    switch (writes_ ? record.write.kind : Action::Kind::kKeep) {
      case Action::Kind::kKeep:
        return Action::Keep();
      case Action::Kind::kRemove:
        return Action::Remove();
      case Action::Kind::kSet:
        break;
    }
    if (!is_second && at + 1 < records_.size() && records_[at + 1] == &record) return Action::Remove();
    if (record.write.expire_at == Expiry::kKeep) return Action::SetKeepingExpiry(record.write.value);
    return Action::Set(record.write.value, record.write.expire_at);
  }
  bool Holds(const Record& record, std::optional<std::string_view> value) const {
    if (record.seen == Seen::kNothing) return true;
    if (value.has_value() != (record.seen != Seen::kAbsent)) return false;
    if (record.seen == Seen::kValue && *value != record.seen_value) return false;
    return !record.seen_time || *record.seen_time == expiry_shown_;
  }

  const TransactionRecords& of_;
  const bool writes_;
  absl::InlinedVector<std::string_view, 16> keys_;
  absl::InlinedVector<const RunOf*, 2> ends_;
  absl::InlinedVector<const Record*, 16> records_;  // of the keys after those of ends_
  std::size_t num_shown_ = 0;
  std::vector<RangeCheck> checks_;  // by the begin of the range
  std::vector<KeyRange> ranges_;    // those of checks_, joined
  std::size_t next_ = 0;            // the first of checks_ that has not begun
  std::vector<std::size_t> begun_;  // those that have begun and not ended
  std::uint64_t expiry_shown_ = Expiry::kNever;
  std::optional<std::string_view> conflict_;
};

Status TransactionRecords::Commit(bool writes, Process process, std::string* conflict) const {
  Validation validation(*this, writes);
  if (parts_.empty()) return validation.Execute(process, conflict);
  for (;;) {
    std::size_t num_begun = 0;
    Status status = CatchNoMemory([&]() -> Status {
      while (num_begun < parts_.size()) HAKO_RETURN_IF_ERROR(parts_[num_begun++]->BeginCommit(*this));
      return validation.Execute(process, conflict);
    });
    for (std::size_t i = 0; i < num_begun; ++i) parts_[i]->EndCommit(status.ok() && writes);
    if (status != TransactionPart::BusyError()) return status;
    std::this_thread::yield();
  }
}

Status TransactionRecords::SchemaConflictError() {
  return absl::AbortedError(
      "the columns or indices of a table have changed since the transaction changed rows of it, or all rows were removed");
}

Status TransactionRecords::ConflictError(std::string_view key) {
  return absl::AbortedError(absl::StrCat("another transaction or update has changed \"", absl::CHexEscape(ToAbsl(key)), "\""));
}

namespace {

std::uint64_t RandomBelow(std::uint64_t bound) {
  thread_local std::uint64_t state = RandomSeed();
  state += 0x9e3779b97f4a7c15u;
  return MixBits(state) % bound;
}

// Databases share a turn if their addresses give the same number, which costs a wait and nothing else.
std::atomic<const Turn*>& HolderOf(const void* database) {
  static std::array<std::atomic<const Turn*>, 64> holders{};
  return holders[MixBits(reinterpret_cast<std::uintptr_t>(database)) % holders.size()];
}

}  // namespace

Turn::Turn(const void* database) : holder_(HolderOf(database)) {}

Turn::~Turn() {
  const Turn* self = this;
  holder_.compare_exchange_strong(self, nullptr, std::memory_order_release, std::memory_order_relaxed);
}

void Turn::Await(unsigned num_aborted) {
  if (holder_.load(std::memory_order_relaxed) == this) return;
  AwaitOthers();
  if (num_aborted >= kPatience) {
    const Turn* none = nullptr;
    if (holder_.compare_exchange_strong(none, this, std::memory_order_acquire, std::memory_order_relaxed)) return;
  }
  if (num_aborted == 0) return;
  static constexpr std::uint64_t kShort = 1'000;  // ns
  const std::uint64_t wait = RandomBelow(kShort << std::min(num_aborted, 8u));
  if (wait < 10 * kShort) {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait); std::chrono::steady_clock::now() < end;)
      std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
  }
}

void Turn::AwaitOthers() const {
  const auto is_taken = [this] {
    const Turn* const holder = holder_.load(std::memory_order_relaxed);
    return holder != nullptr && holder != this;
  };
  if (!is_taken()) return;
  for (const auto end = std::chrono::steady_clock::now() + kWaitMax; is_taken() && std::chrono::steady_clock::now() < end;)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace hako::internal
