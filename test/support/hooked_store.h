// A store of a table that calls a function before each call that reads or changes records, so that a test
// does something else at that moment, or makes the call fail.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hako/dbm/baby_dbm.h"
#include "hako/table/table_store.h"

namespace hako {

// Shared by a store and its test.
struct StoreHook {
  enum class Call { kRead, kUpdate };
  // Returns an error that the call fails with.
  std::function<Status(Call)> before = nullptr;

  Status Run(Call call) const { return before ? before(call) : absl::OkStatus(); }
};

class HookedStore final : public table::TableStore {
  using Call = StoreHook::Call;

 public:
  HookedStore(std::unique_ptr<TableStore> store, std::shared_ptr<StoreHook> hook) : store_(std::move(store)), hook_(std::move(hook)) {}
  // In memory.
  static std::unique_ptr<HookedStore> InMemory(std::shared_ptr<StoreHook> hook) {
    return std::make_unique<HookedStore>(std::make_unique<table::TreeStore<BabyDBM<>>>(*BabyDBM<>::Open(BabyOptions())), std::move(hook));
  }

  Status CheckOpen() override { return store_->CheckOpen(); }
  Status Fetch(std::string_view key, SinkRef sink) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kRead));
    return store_->Fetch(key, sink);
  }
  Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kRead));
    return store_->FetchMulti(keys, sink, arrived);
  }
  Status Process(std::string_view key, UpdateRef visitor) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return store_->Process(key, visitor);
  }
  Status ProcessMulti(Keys keys, MultiUpdateRef visitor, std::size_t num_shown) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return store_->ProcessMulti(keys, visitor, num_shown);
  }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, const std::string& to) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return store_->RemoveRange(from, to);
  }
  Status RemoveTogether(const std::string& from, const std::string& to) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return store_->RemoveTogether(from, to);
  }
  StatusOr<std::uint64_t> CountRange(std::string_view from, const std::string& to) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kRead));
    return store_->CountRange(from, to);
  }
  std::unique_ptr<table::StoreCursor> MakeCursor() override { return std::make_unique<Cursor>(store_->MakeCursor(), hook_); }

  void Prefetch(Keys keys) override { store_->Prefetch(keys); }
  std::uint64_t Count() override { return store_->Count(); }
  Status Synchronize(SyncMode mode) override { return store_->Synchronize(mode); }
  std::uint64_t LastLsn() override { return store_->LastLsn(); }
  Status WaitDurable(std::uint64_t lsn) override { return store_->WaitDurable(lsn); }
  Status CopyTo(const std::string& path) override { return store_->CopyTo(path); }
  bool ShouldBeRebuilt() override { return store_->ShouldBeRebuilt(); }
  Status Rebuild() override { return store_->Rebuild(); }
  Status Verify() override { return store_->Verify(); }
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options) override { return store_->Scrub(options); }
  Stats GetStats() override { return store_->GetStats(); }
  Inspection Inspect() override { return store_->Inspect(); }
  bool IsWritable() override { return store_->IsWritable(); }
  Status GetHealth() override { return store_->GetHealth(); }
  Status Close() override { return store_->Close(); }
  Status CloseUnkept() override { return store_->CloseUnkept(); }
  std::optional<std::uint32_t> GetType() override { return store_->GetType(); }
  Status SetType(std::uint32_t type) override { return store_->SetType(type); }

 private:
  class Cursor final : public table::StoreCursor {
   public:
    Cursor(std::unique_ptr<StoreCursor> cursor, std::shared_ptr<StoreHook> hook) : cursor_(std::move(cursor)), hook_(std::move(hook)) {}
    void Jump(std::string_view key) override {
      Move([&] { cursor_->Jump(key); });
    }
    void JumpBriefly(std::string_view key) override {
      Move([&] { cursor_->JumpBriefly(key); });
    }
    void JumpAhead(std::string_view key) override {
      Move([&] { cursor_->JumpAhead(key); });
    }
    std::uint64_t CountAbout(std::string_view key) override { return cursor_->CountAbout(key); }
    void JumpBelow(std::string_view key) override {
      Move([&] { cursor_->JumpBelow(key); });
    }
    void Next() override {
      cursor_->Next();
      Show();
    }
    void Previous() override {
      cursor_->Previous();
      Show();
    }
    const Status& status() const override { return status_; }

   private:
    template <class F>
    void Move(F&& move) {
      status_ = hook_->Run(Call::kRead);
      if (!status_.ok()) {
        valid_ = false;
        return;
      }
      move();
      Show();
    }
    void Show() {
      status_ = cursor_->status();
      valid_ = cursor_->Valid();
      if (!valid_) return;
      key_ = cursor_->key();
      value_ = cursor_->value();
    }

    std::unique_ptr<StoreCursor> cursor_;
    std::shared_ptr<StoreHook> hook_;
    Status status_;
  };

  std::unique_ptr<TableStore> store_;
  std::shared_ptr<StoreHook> hook_;
};

}  // namespace hako
