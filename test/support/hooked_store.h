// A store of a table that calls a function before each call that reads or changes records, so that a test
// does something else at that moment, or makes the call fail.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hako/dbm/any_model.h"
#include "hako/dbm/baby_dbm.h"

namespace hako {

// Shared by a store and its test.
struct StoreHook {
  enum class Call { kRead, kUpdate };
  // Returns an error that the call fails with.
  std::function<Status(Call)> before = nullptr;

  Status Run(Call call) const { return before ? before(call) : absl::OkStatus(); }
};

template <class D = BabyDBM<>>
class HookedStore final : public internal::AnyModel<D> {
  using Model = internal::AnyModel<D>;
  using Keys = internal::AnyDatabase::Keys;
  using Call = StoreHook::Call;

 public:
  HookedStore(std::unique_ptr<D> db, std::shared_ptr<StoreHook> hook) : Model(std::move(db)), hook_(std::move(hook)) {}
  // In memory.
  static std::unique_ptr<HookedStore> InMemory(std::shared_ptr<StoreHook> hook) {
    return std::make_unique<HookedStore>(*D::Open(BabyOptions()), std::move(hook));
  }

  using Model::Process, Model::ProcessMulti;
  Status Fetch(std::string_view key, SinkRef sink) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kRead));
    return Model::Fetch(key, sink);
  }
  Status FetchMulti(Keys keys, internal::AnyDatabase::MultiSinkRef sink, internal::AnyDatabase::ArrivedRef arrived) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kRead));
    return Model::FetchMulti(keys, sink, arrived);
  }
  Status Process(std::string_view key, UpdateRef visitor) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return Model::Process(key, visitor);
  }
  Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return Model::ProcessMulti(batch, expiry_shown);
  }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return Model::RemoveRange(from, to);
  }
  Status Write(const WriteBatch& batch) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kUpdate));
    return Model::Write(batch);
  }
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) override {
    HAKO_RETURN_IF_ERROR(hook_->Run(Call::kRead));
    return Model::CountRange(from, to);
  }
  std::unique_ptr<internal::AnyCursor> MakeCursor() override { return std::make_unique<Cursor>(Model::MakeCursor(), hook_); }

 private:
  class Cursor final : public internal::AnyCursor {
   public:
    Cursor(std::unique_ptr<AnyCursor> cursor, std::shared_ptr<StoreHook> hook) : cursor_(std::move(cursor)), hook_(std::move(hook)) {}
    void First() override {
      Move([&] { cursor_->First(); });
    }
    void Jump(std::string_view key) override {
      Move([&] { cursor_->Jump(key); });
    }
    void Last() override {
      Move([&] { cursor_->Last(); });
    }
    void JumpLower(std::string_view key, bool inclusive) override {
      Move([&] { cursor_->JumpLower(key, inclusive); });
    }
    void JumpUpper(std::string_view key, bool inclusive) override {
      Move([&] { cursor_->JumpUpper(key, inclusive); });
    }
    void JumpBriefly(std::string_view key) override {
      Move([&] { cursor_->JumpBriefly(key); });
    }
    void JumpAhead(std::string_view key) override {
      Move([&] { cursor_->JumpAhead(key); });
    }
    std::uint64_t CountAbout(std::string_view key) override { return cursor_->CountAbout(key); }
    void Next() override {
      cursor_->Next();
      Show(*cursor_);
    }
    void Previous() override {
      cursor_->Previous();
      Show(*cursor_);
    }
    bool SkipDamage() override {
      const bool skipped = cursor_->SkipDamage();
      Show(*cursor_);
      return skipped;
    }
    std::uint64_t expire_at() const override { return cursor_->expire_at(); }
    const Status& status() const override { return refused_.ok() ? cursor_->status() : refused_; }

   private:
    template <class F>
    void Move(F&& move) {
      if (Status refused = hook_->Run(Call::kRead); !refused.ok()) return Refuse(std::move(refused));
      refused_ = absl::OkStatus();
      move();
      Show(*cursor_);
    }

    std::unique_ptr<AnyCursor> cursor_;
    std::shared_ptr<StoreHook> hook_;
  };

  std::shared_ptr<StoreHook> hook_;
};

}  // namespace hako
