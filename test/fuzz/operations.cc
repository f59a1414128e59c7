// Operations beside a model, on each of the four databases on real files: updates, reads, scans,
// synchronizations, Close, kills and system calls that fail.
//
// A kill is a copy of the files of the open database, which the next one opens. Without a failed call,
// what follows is known exactly. After one, a key may have any of the values that it had before.
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/database.h"
#include "fuzz/target.h"
#include "support/failing_calls.h"
#include "support/killed_files.h"

namespace hako::fuzz {
namespace {

class Machine {
 public:
  explicit Machine(unsigned mode) {
    constexpr std::array kKinds = {AnyOptions::kHash, AnyOptions::kTree, AnyOptions::kTiny, AnyOptions::kBaby};
    kind_ = kKinds[mode % 4];
    mode_ = mode / 4 & (kPositional | kNoLog);
    page_size_ = (mode & 64) != 0 ? 128 : 8192;
    Folder::Instance().Empty();
    Open();
  }
  ~Machine() { FailingCalls::Instance().Disarm(); }

  void Run(Bytes& bytes) {
    while (!bytes.empty()) {
      const unsigned op = bytes.Byte();
      if (op < 200)
        Update(op, bytes);
      else
        Manage(op, bytes);
    }
    Reopen(true);
  }

 private:
  using Records = std::map<std::string, std::string>;

  std::string Path() const { return Folder::Instance().Path("db" + std::to_string(number_)); }
  void Open() {
    FailingCalls::Instance().Disarm();
    AnyOptions options = OptionsOf(kind_, mode_, Path());
    if (kind_ == AnyOptions::kTree || kind_ == AnyOptions::kBaby) options.page_size = page_size_;
    auto db = AnyDBM::Open(options);
    Require(db.ok(), "the database cannot be opened:", db.status());
    db_ = *std::move(db);
  }
  bool HasFailed() const { return may_have_failed_ && FailingCalls::Instance().fired() != 0; }

  static std::string Key(unsigned byte) { return std::string(byte % 64 == 0 ? 300 : byte % 3, 'k') + std::to_string(byte % 64); }
  static std::string Value(unsigned byte) {
    constexpr std::array kSizes = {0, 1, 8, 30, 100, 130, 3000, 20'000};
    return std::string(static_cast<std::size_t>(kSizes[byte % kSizes.size()]), static_cast<char>('a' + byte / 8));
  }
  // After an update that has changed nothing, or may have.
  void Note(const std::string& key, const std::optional<std::string>& value, const Status& status) {
    if (value.has_value()) past_[key].insert(*value);
    if (!status.ok()) return Require(HasFailed(), "an update fails without a reason:", status);
    if (value.has_value())
      records_[key] = *value;
    else
      records_.erase(key);
  }

  void Update(unsigned op, Bytes& bytes) {
    const std::string key = Key(bytes.Byte());
    const auto it = records_.find(key);
    const bool exists = it != records_.end();
    switch (op % 8) {
      case 0:
      case 1:
      case 2: {
        const std::string value = Value(bytes.Byte());
        return Note(key, value, db_->Set(key, value));
      }
      case 3: {
        const Status status = db_->Remove(key);
        if (exists || HasFailed()) return Note(key, std::nullopt, absl::IsNotFound(status) && HasFailed() ? absl::OkStatus() : status);
        return Require(absl::IsNotFound(status), "an absent record was removed:", status);
      }
      case 4: {
        const std::string more = Value(bytes.Byte() % 6);
        if (HasFailed()) break;
        return Note(key, exists ? it->second + more : more, db_->Append(key, more));
      }
      case 5: {
        WriteBatch batch;
        Records set;
        for (unsigned i = bytes.Byte() % 8; i > 0; --i) set[Key(bytes.Byte())] = Value(bytes.Byte());
        for (const auto& [name, value] : set) batch.Set(name, value);
        if (!set.contains(key)) batch.Remove(key);
        const Status status = db_->Write(batch);
        for (const auto& [name, value] : set) Note(name, value, status);
        if (!set.contains(key)) Note(key, std::nullopt, status);
        return;
      }
      default:
        break;
    }
    if (HasFailed()) return;
    const StatusOr<std::string> value = db_->Get(key);
    Require(value.ok() == exists && (!exists || *value == it->second), "another value than the model's:", value.status());
  }

  void Manage(unsigned op, Bytes& bytes) {
    switch (op % 8) {
      case 0:
        return Reopen(true);
      case 1:
      case 2:
        return Reopen(false);
      case 3: {
        const Status status = db_->Synchronize(SyncMode::kHard);
        if (status.ok() && !HasFailed()) {
          synced_ = records_;
          is_synced_unknown_ = false;
        }
        return Require(status.ok() || HasFailed(), "Synchronize fails:", status);
      }
      case 4: {
        const Status status = db_->Clear();
        if (status.ok()) records_.clear();
        is_synced_unknown_ = true;  // it may synchronize
        return Require(status.ok() || HasFailed(), "Clear fails:", status);
      }
      case 5: {
        const Status status = op < 230 ? db_->Rebuild() : db_->CopyTo(Folder::Instance().Path("copy"));
        is_synced_unknown_ = true;
        return Require(status.ok() || HasFailed(), "Rebuild or CopyTo fails:", status);
      }
      case 6: {
        const CallFault fault = FaultOf(bytes);
        if (HasFailed()) return;
        FailingCalls::Instance().Arm(fault);
        may_have_failed_ = true;
        return;
      }
      default:
        return Compare();
    }
  }

  // The database has the records of the model.
  void Compare() {
    Records found;
    const Status status = db_->ProcessEach([&](std::string_view key, std::string_view value) { found.emplace(key, value); });
    if (HasFailed()) return;
    Require(status.ok() && found == records_, "the records are not the model's:", status);
    Require(db_->Count() == found.size(), "Count is not the number of records");
    const Status verified = db_->Verify();
    Require(verified.ok() || HasFailed(), "Verify:", verified);
    is_synced_unknown_ = true;
  }

  void Reopen(bool closes) {
    const bool has_failed = HasFailed();
    bool keeps_all = closes;
    if (closes) {
      const Status status = db_->Close();
      Require(status.ok() || HasFailed(), "Close fails:", status);
      db_.reset();
    } else {
      FailingCalls::Instance().Disarm();
      const std::string from = Path();
      ++number_;
      CopyAsKilled(from, Path());
      if (kind_ == AnyOptions::kHash && (mode_ & kPositional) == 0) ClaimLiveState(Path());
      db_.reset();
      keeps_all = (mode_ & kNoLog) == 0 || (kind_ == AnyOptions::kHash && (mode_ & kPositional) == 0);
    }
    const bool is_known = !has_failed && !HasFailed();
    Open();
    if (!is_known || (!keeps_all && is_synced_unknown_)) {
      AdoptRecords();
    } else if (!keeps_all) {
      records_ = synced_;
    }
    may_have_failed_ = false;
    synced_ = records_;
    Compare();
    is_synced_unknown_ = false;  // nothing has changed
  }
  // After a failure each record has a value that it once had.
  void AdoptRecords() {
    records_.clear();
    const Status status = db_->ProcessEach([&](std::string_view key, std::string_view value) { records_.emplace(key, value); });
    Require(status.ok(), "the records cannot be read after a failure:", status);
    for (const auto& [key, value] : records_) Require(past_[key].contains(value), "a record has a value that it never had: " + key);
  }

  std::string_view kind_;
  unsigned mode_ = 0, page_size_ = 8192;
  int number_ = 0;
  std::unique_ptr<AnyDBM> db_;
  Records records_, synced_;
  std::map<std::string, std::set<std::string>> past_;  // all values that a key had
  bool may_have_failed_ = false;                       // since the database was opened
  bool is_synced_unknown_ = false;                     // something else than Synchronize may have synchronized
};

void Run(std::string_view input) {
  constexpr std::size_t kOperationsMax = 1000;
  Bytes bytes(input.substr(0, kOperationsMax));
  Machine machine(bytes.Byte());
  machine.Run(bytes);
}

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (unsigned kind = 0; kind < 4; ++kind) {
    for (const unsigned device : {0u, kPositional, kNoLog, kPositional | kNoLog}) {
      Random random(kind * 16 + device);
      std::string seed(1, static_cast<char>(kind + 4 * device + 64 * random.Below(2)));
      seeds.push_back(seed + random.Bytes(150));
    }
  }
  return seeds;
}

const Registration kTarget({.name = "operations", .run = Run, .make_seeds = MakeSeeds, .mutants = 12});

}  // namespace
}  // namespace hako::fuzz
