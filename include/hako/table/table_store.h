// TableStore: the interface through which a table uses its ordered database. TreeStore adapts a
// TreeDBM or BabyDBM of any file; the library compiles it for the default ones
// (src/table/open_table.cc), so a program that uses a table compiles no database.
//
// A table makes one virtual call for an operation on a row, which changes several records. The call
// costs a few nanoseconds; the operation takes about a microsecond.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/function_ref.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/storage/scrub_progress.h"

namespace hako::table {

// A cursor over the records, in order: see dbm/tree_cursor.h.
class StoreCursor {
 public:
  virtual ~StoreCursor() = default;
  virtual void Jump(std::string_view key) = 0;  // to the first record at or after the key
  virtual void JumpBriefly(std::string_view key) = 0;
  // As Jump, to a key that is not before the present record. REQUIRES: Valid() (checked in
  // JumpAhead)
  virtual void JumpAhead(std::string_view key) = 0;
  // Returns about how many records from the present one on are below the key. REQUIRES: Valid()
  // (checked in CountAbout)
  virtual std::uint64_t CountAbout(std::string_view key) = 0;
  virtual void JumpBelow(std::string_view key) = 0;  // to the last record before the key
  virtual void Next() = 0;                           // does nothing if the cursor is at no record
  virtual void Previous() = 0;                       // as Next
  virtual const Status& status() const = 0;
  bool Valid() const { return valid_; }
  std::string_view key() const {  // REQUIRES: Valid(); until the next move
    HAKO_DCHECK(valid_);
    return key_;
  }
  std::string_view value() const {  // see key
    HAKO_DCHECK(valid_);
    return value_;
  }

 protected:
  bool valid_ = false;
  std::string_view key_, value_;
};

// The database. See dbm/dbm.h for each function.
class TableStore {
 public:
  using Keys = std::span<const std::string_view>;
  using SinkRef = FunctionRef<char*(std::size_t)>;
  using MultiSinkRef = FunctionRef<char*(std::size_t, std::size_t)>;
  using ArrivedRef = FunctionRef<void(std::size_t, bool)>;

  virtual ~TableStore() = default;
  virtual Status Fetch(std::string_view key, SinkRef sink) = 0;
  // Copies the value to a string.
  Status FetchTo(std::string_view key, std::string* value) {
    return Fetch(key, [value](std::size_t size) {
      value->resize(size);
      return value->data();
    });
  }
  virtual Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) = 0;
  virtual Status Process(std::string_view key, UpdateRef visitor) = 0;
  virtual Status ProcessMulti(Keys keys, MultiUpdateRef visitor, std::size_t num_shown) = 0;
  virtual void Prefetch(Keys keys) = 0;
  virtual StatusOr<std::uint64_t> CountRange(std::string_view from, const std::string& to) = 0;
  virtual StatusOr<std::uint64_t> RemoveRange(std::string_view from, const std::string& to) = 0;
  // Removes the range in one atomic step.
  virtual Status RemoveTogether(const std::string& from, const std::string& to) = 0;
  virtual std::unique_ptr<StoreCursor> MakeCursor() = 0;

  // Returns FailedPrecondition after Close, and in a forked child.
  virtual Status CheckOpen() = 0;
  virtual std::uint64_t Count() = 0;
  virtual Status Synchronize(SyncMode mode) = 0;
  virtual std::uint64_t LastLsn() = 0;
  virtual Status WaitDurable(std::uint64_t lsn) = 0;
  virtual Status CopyTo(const std::string& path) = 0;
  virtual bool ShouldBeRebuilt() = 0;
  virtual Status Rebuild() = 0;
  virtual Status Verify() = 0;
  virtual StatusOr<ScrubProgress> Scrub(const ScrubOptions& options) = 0;
  virtual Stats GetStats() = 0;
  virtual Inspection Inspect() = 0;
  virtual bool IsWritable() = 0;
  virtual Status GetHealth() = 0;
  virtual Status Close() = 0;
  // Closes a database whose table could not be opened. Removes a file that was created, and blanks
  // one that was blank.
  virtual Status CloseUnkept() = 0;
  // Returns the type in the file; nullopt for a database in memory, which has none.
  virtual std::optional<std::uint32_t> GetType() = 0;
  virtual Status SetType(std::uint32_t type) = 0;
};

template <class D>
class TreeStoreCursor final : public StoreCursor {
 public:
  explicit TreeStoreCursor(D& db) : it_(db.MakeIterator()) {}
  void Jump(std::string_view key) override {
    it_.Jump(key);
    Show();
  }
  void JumpBriefly(std::string_view key) override {
    it_.JumpBriefly(key);
    Show();
  }
  void JumpAhead(std::string_view key) override {
    it_.JumpAhead(key);
    Show();
  }
  std::uint64_t CountAbout(std::string_view key) override { return it_.CountAbout(key); }
  void JumpBelow(std::string_view key) override {
    it_.JumpLower(key, false);
    Show();
  }
  void Next() override {
    it_.Next();
    Show();
  }
  void Previous() override {
    it_.Previous();
    Show();
  }
  const Status& status() const override { return it_.status(); }

 private:
  void Show() {
    valid_ = it_.Valid();
    if (!valid_) return;
    key_ = it_.key();
    value_ = it_.value();
  }

  typename D::Iterator it_;
};

template <class D>
class TreeStore final : public TableStore {
 public:
  explicit TreeStore(std::unique_ptr<D> db = nullptr) : db_(std::move(db)) {}
  void Take(std::unique_ptr<D> db) { db_ = std::move(db); }

  Status Fetch(std::string_view key, SinkRef sink) override { return db_->Fetch(key, sink); }
  Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) override { return db_->FetchMulti(keys, sink, arrived); }
  Status Process(std::string_view key, UpdateRef visitor) override { return db_->Process(key, visitor); }
  Status ProcessMulti(Keys keys, MultiUpdateRef visitor, std::size_t num_shown) override {
    return CatchNoMemory([&] { return db_->ProcessMulti(Batch<Action>{keys, visitor, num_shown}); });
  }
  void Prefetch(Keys keys) override { db_->Prefetch(keys); }
  StatusOr<std::uint64_t> CountRange(std::string_view from, const std::string& to) override { return db_->CountRange(from, to); }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, const std::string& to) override { return db_->RemoveRange(from, to); }
  std::unique_ptr<StoreCursor> MakeCursor() override { return std::make_unique<TreeStoreCursor<D>>(*db_); }
  Status CheckOpen() override { return db_->CheckOpen(); }
  std::uint64_t Count() override { return db_->Count(); }
  Status RemoveTogether(const std::string& from, const std::string& to) override {
    WriteBatch batch;
    batch.RemoveRange(from, to);
    return db_->Write(batch);
  }
  Status Synchronize(SyncMode mode) override {
    if constexpr (kHasFile) return db_->Synchronize(mode);
    return db_->CheckOpen();
  }
  std::uint64_t LastLsn() override { return db_->LastLsn(); }
  Status WaitDurable(std::uint64_t lsn) override {
    if constexpr (kHasFile) return db_->WaitDurable(lsn);
    return db_->CheckOpen();
  }
  Status CopyTo([[maybe_unused]] const std::string& path) override {
    if constexpr (requires { db_->CopyTo(path); })
      return db_->CopyTo(path);
    else
      return absl::UnimplementedError("a table in memory has no file to copy");
  }
  Status Rebuild() override {
    if constexpr (requires { db_->Rebuild(); })
      return db_->Rebuild();
    else
      return db_->CheckOpen();
  }
  bool ShouldBeRebuilt() override {
    if constexpr (requires { db_->ShouldBeRebuilt(); })
      return db_->ShouldBeRebuilt();
    else
      return false;
  }
  Status Verify() override { return db_->Verify(); }
  StatusOr<ScrubProgress> Scrub([[maybe_unused]] const ScrubOptions& options) override {
    if constexpr (requires { db_->Scrub(options); }) return db_->Scrub(options);
    HAKO_RETURN_IF_ERROR(db_->CheckOpen());
    ScrubProgress nothing;
    nothing.is_complete = true;
    return nothing;
  }
  Stats GetStats() override { return db_->GetStats(); }
  Inspection Inspect() override { return db_->Inspect(); }
  bool IsWritable() override { return db_->IsWritable(); }
  Status GetHealth() override { return db_->GetHealth(); }
  Status Close() override { return db_->Close(); }
  Status CloseUnkept() override {
    if constexpr (requires { db_->CloseUnkept(); }) return db_->CloseUnkept();
    return db_->Close();
  }
  std::optional<std::uint32_t> GetType() override {
    if constexpr (kHasFile)
      return db_->GetType();
    else
      return std::nullopt;
  }
  Status SetType([[maybe_unused]] std::uint32_t type) override {
    if constexpr (kHasFile)
      return db_->SetType(type);
    else
      return absl::OkStatus();
  }

 private:
  static constexpr bool kHasFile = requires(D & d) { d.SetType(1u); };
  std::unique_ptr<D> db_;
};

}  // namespace hako::table
