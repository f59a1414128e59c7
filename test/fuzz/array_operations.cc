// Operations of arrays beside a model, on real files and in memory: by number and by key, batches with ranges,
// iteration both ways, synchronizations, Close, kills and system calls that fail.
//
// A kill is a copy of the files of the open database, which the next one opens. It has every acknowledged
// update and no other, also after calls have failed.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/target.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/positional_array_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/failing_calls.h"
#include "support/killed_files.h"

namespace hako::fuzz {
namespace {

template <class D>
class Machine {
  static constexpr bool kIsFile = requires(D & db) { db.SetType(1); };

 public:
  Machine(unsigned width, Bytes& bytes) : width_(width), bytes_(bytes) {
    Folder::Instance().Empty();
    Open();
  }
  ~Machine() { FailingCalls::Instance().Disarm(); }

  void Run() {
    while (!bytes_.empty()) {
      const unsigned op = bytes_.Byte();
      op < 210 ? Operate(op % 10) : Manage(op % 8);
    }
    Reopen(true);
  }

 private:
  using Model = std::map<std::uint64_t, std::string>;

  std::string Path() const { return Folder::Instance().Path("db" + std::to_string(number_)); }
  void Open() {
    FailingCalls::Instance().Disarm();
    may_have_failed_ = false;
    std::conditional_t<kIsFile, ArrayOptions, MemoryArrayOptions> options;
    options.width = width_;
    if constexpr (kIsFile) options.cache_bytes = 1 << 20;
    auto db = D::Open(Path(), options);
    Require(db.ok(), "the array cannot be opened:", db.status());
    db_ = *std::move(db);
  }
  bool HasFailed() const { return may_have_failed_ && FailingCalls::Instance().fired() != 0; }

  // Near each other, in the next pages, far away.
  std::uint64_t Id() {
    const unsigned byte = bytes_.Byte();
    if (byte < 100) return byte;
    if (byte < 180) return (byte - 100) * 97;
    if (byte < 240) return (byte - 180) * 17'179'869'001;
    return kRecordIdMax - (byte - 240) * (byte % 2 == 0 ? 1 : 2'000'000'000);
  }
  std::string Value() {
    const unsigned byte = bytes_.Byte();
    return std::string(byte % 4 == 0 ? byte / 4 % (width_ + 1) : width_, static_cast<char>(byte));
  }
  std::string Completed(std::string value) const {
    value.resize(width_);
    return value;
  }

  // After an update that makes `after` of the model.
  void Note(const Status& status, Model after) {
    if (status.ok()) {
      model_ = std::move(after);
    } else {
      Require(HasFailed(), "an update fails without a reason:", status);
    }
  }

  void Operate(unsigned op) {
    const std::uint64_t id = Id();
    Model after = model_;
    const auto found = model_.find(id);
    const bool exists = found != model_.end();
    switch (op) {
      case 0:
      case 1:
      case 2: {
        const std::string value = Value();
        after[id] = Completed(value);
        return Note(db_->Set(id, value), after);
      }
      case 3: {
        const Status status = db_->Remove(id);
        after.erase(id);
        Require(!status.ok() || exists, "an absent record was removed");
        return exists ? Note(status, after) : Require(absl::IsNotFound(status) || HasFailed(), "Remove:", status);
      }
      case 4: {
        const std::string value = Value();
        const StatusOr<std::uint64_t> at = db_->Append(value);
        const std::uint64_t wanted = model_.empty() ? 0 : model_.rbegin()->first + 1;
        if (at.ok()) Require(*at == wanted, "Append gives another number than the one behind the last");
        if (wanted > kRecordIdMax)
          return Require(absl::IsOutOfRange(at.status()) || HasFailed(), "Append behind all numbers:", at.status());
        after[wanted] = Completed(value);
        return Note(at.status(), after);
      }
      case 5:
        return Write(after);
      case 6: {
        const std::uint64_t to = id + (bytes_.Byte() % 8 == 0 ? kRecordIdMax : bytes_.Byte());
        after.erase(after.lower_bound(id), after.lower_bound(to));
        const StatusOr<std::uint64_t> removed = db_->RemoveRange(id, to);
        if (removed.ok()) Require(*removed == model_.size() - after.size(), "RemoveRange removes another number of records");
        if (!removed.ok()) Adopt(after);
        return Note(removed.status(), after);
      }
      case 7: {
        const std::uint64_t to = id + bytes_.Byte() * 1'000'000;
        const StatusOr<std::uint64_t> count = db_->CountRange(id, to);
        const auto wanted = std::distance(model_.lower_bound(id), model_.lower_bound(to));
        return Require(count.ok() ? *count == static_cast<std::uint64_t>(wanted) : HasFailed(), "CountRange:", count.status());
      }
      case 8:
        return Jump(id);
      default: {
        const StatusOr<std::string> value = db_->Get(id);
        if (!value.ok() && HasFailed()) return;
        Require(value.ok() == exists && (!exists || *value == found->second), "another value than the model's:", value.status());
      }
    }
  }
  void Write(Model after) {
    WriteBatch batch;
    for (unsigned n = bytes_.Byte() % 16; n > 0; --n) {
      const unsigned what = bytes_.Byte();
      const std::uint64_t id = Id();
      if (what % 8 == 0) {
        const std::uint64_t to = id + what * what * (what > 128 ? 100'000'000 : 1);
        batch.RemoveRange(RecordKey(id).view(), to > kRecordIdMax ? std::nullopt : std::optional(std::to_string(to)));
        after.erase(after.lower_bound(id), after.lower_bound(to));
      } else if (what % 3 == 0) {
        batch.Remove(RecordKey(id).view());
        after.erase(id);
      } else {
        const std::string value = Value();
        batch.Set(RecordKey(id).view(), value);
        after[id] = Completed(value);
      }
    }
    Note(db_->Write(batch), after);
  }
  void Jump(std::uint64_t id) {
    auto it = db_->MakeIterator();
    const auto upper = model_.lower_bound(id);
    it.Jump(id);
    if (HasFailed()) return;
    Require(it.Valid() == (upper != model_.end()) && (!it.Valid() || it.id() == upper->first), "Jump:", it.status());
    it.JumpLower(id);
    if (HasFailed()) return;
    Require(it.Valid() == (upper != model_.begin()) && (!it.Valid() || it.id() == std::prev(upper)->first), "JumpLower:", it.status());
  }

  void Manage(unsigned op) {
    switch (op) {
      case 0:
        return Reopen(true);
      case 1:
      case 2:
        return Reopen(false);
      case 3:
      case 4: {
        const Status status = db_->Synchronize(SyncMode::kHard);
        return Require(status.ok() || HasFailed(), "Synchronize fails:", status);
      }
      case 5: {
        const Status status = db_->Clear();
        return Note(status, {});
      }
      case 6: {
        const CallFault fault = FaultOf(bytes_);
        if (HasFailed()) return;
        FailingCalls::Instance().Arm(fault);
        may_have_failed_ = true;
        return;
      }
      default:
        return Compare();
    }
  }
  Model Records() {
    Model found;
    auto it = db_->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) found.emplace_hint(found.end(), it.id(), it.value());
    if (!HasFailed()) Require(it.status().ok(), "a scan fails:", it.status());
    return found;
  }
  void Compare() {
    const Model found = Records();
    if (HasFailed()) return;
    Require(found == model_, "the records are not the model's");
    Require(db_->Count() == found.size(), "Count is not the number of records");
    const Status verified = db_->Verify();
    Require(verified.ok() || HasFailed(), "Verify:", verified);
  }
  // A range is removed page by page.
  void Adopt(const Model& after) {
    FailingCalls::Instance().Disarm();
    for (auto it = model_.begin(); it != model_.end();) {
      const StatusOr<bool> exists = after.contains(it->first) ? StatusOr<bool>(true) : db_->Contains(it->first);
      it = !exists.ok() || *exists ? std::next(it) : model_.erase(it);
    }
  }

  void Reopen(bool closes) {
    if (closes) {
      const Status status = db_->Close();
      Require(status.ok() || HasFailed(), "Close fails:", status);
    }
    FailingCalls::Instance().Disarm();
    if (!closes) {
      const std::string from = Path();
      ++number_;
      CopyAsKilled(from, Path());
    }
    db_.reset();
    Open();
    Compare();
  }

  const unsigned width_;
  Bytes& bytes_;
  int number_ = 0;
  std::unique_ptr<D> db_;
  Model model_;
  bool may_have_failed_ = false;  // since the array was opened
};

void Run(std::string_view input) {
  constexpr std::size_t kOperationsMax = 1000;
  Bytes bytes(input.substr(0, kOperationsMax));
  const unsigned mode = bytes.Byte();
  const unsigned width = std::array{1u, 8u, 33u, 4096u}[mode / 3 % 4];
  if (mode % 3 == 0) return Machine<ArrayDBM<>>(width, bytes).Run();
  if (mode % 3 == 1) return Machine<ArrayDBM<PositionalParallelFile>>(width, bytes).Run();
  Machine<MemoryArrayDBM<>>(width, bytes).Run();
}

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (unsigned mode = 0; mode < 12; ++mode) {
    Random random(mode);
    seeds.push_back(std::string(1, static_cast<char>(mode)) + random.Bytes(150));
  }
  return seeds;
}

const Registration kTarget({.name = "array_operations", .run = Run, .make_seeds = MakeSeeds, .mutants = 12});

}  // namespace
}  // namespace hako::fuzz
