// Definitions of dbm/any_dbm.h: the virtual interface, its implementation for each DBM, and the
// forwarding calls.
#pragma once

#include "hako/dbm/any_dbm.h"

namespace hako {

inline Status AnyDBM::NoOrderError() { return absl::UnimplementedError("this kind of database is not ordered"); }

struct AnyDBM::CursorInterface {
  virtual ~CursorInterface() = default;
  virtual void First() = 0;
  virtual void Jump(std::string_view key) = 0;
  virtual void Next() = 0;
  virtual void Last() = 0;
  virtual void JumpLower(std::string_view key, bool inclusive) = 0;
  virtual void JumpUpper(std::string_view key, bool inclusive) = 0;
  virtual void Previous() = 0;
  virtual bool Valid() const = 0;
  virtual std::string_view key() const = 0;
  virtual std::string_view value() const = 0;
  virtual std::uint64_t expire_at() const = 0;
  virtual const Status& status() const = 0;
  virtual bool SkipDamage() = 0;
  // Moves to the end, where status() is `why` until First or Jump.
  virtual void Refuse(Status why) = 0;
};

template <class Cursor>
class AnyDBM::CursorModel final : public CursorInterface {
 public:
  static constexpr bool kIsOrdered = requires(Cursor & cursor, std::string_view key) {
    cursor.Last();
    cursor.JumpLower(key, true);
    cursor.JumpUpper(key, true);
    cursor.Previous();
  };

  explicit CursorModel(Cursor cursor) : cursor_(std::move(cursor)) {}
  void First() override {
    refused_ = absl::OkStatus();
    cursor_.First();
  }
  void Jump(std::string_view key) override {
    refused_ = absl::OkStatus();
    cursor_.Jump(key);
  }
  void Next() override { cursor_.Next(); }
  void Last() override {
    InOrder([](auto& cursor) { cursor.Last(); });
  }
  void JumpLower(std::string_view key, bool inclusive) override {
    InOrder([&](auto& cursor) { cursor.JumpLower(key, inclusive); });
  }
  void JumpUpper(std::string_view key, bool inclusive) override {
    InOrder([&](auto& cursor) { cursor.JumpUpper(key, inclusive); });
  }
  void Previous() override {
    InOrder([](auto& cursor) { cursor.Previous(); });
  }
  bool Valid() const override { return refused_.ok() && cursor_.Valid(); }
  std::string_view key() const override { return cursor_.key(); }
  std::string_view value() const override { return cursor_.value(); }
  std::uint64_t expire_at() const override { return cursor_.expire_at(); }
  const Status& status() const override { return refused_.ok() ? cursor_.status() : refused_; }
  bool SkipDamage() override {
    if constexpr (requires { cursor_.SkipDamage(); }) return refused_.ok() && cursor_.SkipDamage();
    return false;
  }
  void Refuse(Status why) override { refused_ = std::move(why); }

 private:
  template <class Move>
  void InOrder(Move move) {
    if constexpr (kIsOrdered)
      move(cursor_);
    else
      refused_ = NoOrderError();
  }

  Cursor cursor_;
  Status refused_;
};

struct AnyDBM::Interface {
  virtual ~Interface() = default;
  virtual Status Process(std::string_view key, UpdateRef visitor) = 0;
  virtual Status Process(std::string_view key, BlindUpdateRef visitor) = 0;
  virtual Status Process(std::string_view key, ReadRef visitor) = 0;
  virtual Status Fetch(std::string_view key, SinkRef sink) = 0;
  virtual Status Append(std::string_view key, std::string_view value, std::string_view delimiter) = 0;
  virtual Status ProcessMulti(Keys keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown) = 0;
  virtual Status ProcessMulti(Keys keys, MultiReadRef visitor) = 0;
  virtual const Expiry* expiry() const = 0;
  virtual Status SetExpiry(std::string_view key, std::uint64_t expire_at) = 0;
  virtual StatusOr<std::uint64_t> GetExpiry(std::string_view key) = 0;
  virtual StatusOr<std::uint64_t> RemoveExpired() = 0;
  virtual Status Write(const WriteBatch& batch) = 0;
  virtual std::uint64_t AppliedIndex() const = 0;
  virtual Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) = 0;
  virtual void Prefetch(Keys keys) const = 0;
  virtual bool PrefetchReads() const = 0;
  virtual Status ProcessEach(EachRef visitor) = 0;
  virtual Status ProcessEachParallel(unsigned num_threads, EachRef visitor) = 0;
  virtual Status ProcessState(StateRef visitor, const OnDamage& on_damage) = 0;
  virtual std::unique_ptr<CursorInterface> MakeCursor() = 0;
  virtual bool IsOrdered() const = 0;
  virtual Order KeyOrder() const = 0;  // null if unordered
  virtual bool HasPrefixRange() const = 0;
  virtual StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) = 0;
  virtual StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) = 0;
  virtual std::uint64_t Count() const = 0;
  virtual Status Clear() = 0;
  virtual Status Synchronize(SyncMode mode) = 0;
  virtual std::uint64_t LastLsn() { return 0; }
  virtual Status WaitDurable(std::uint64_t) { return Synchronize(SyncMode::kHard); }
  virtual bool ShouldBeRebuilt() = 0;
  virtual Status Rebuild() = 0;
  virtual Status CopyTo(const std::string& path) = 0;
  virtual Status Verify() = 0;
  virtual StatusOr<ScrubProgress> Scrub(const ScrubOptions& options) = 0;
  virtual Stats GetStats() = 0;
  virtual Inspection Inspect() = 0;
  virtual bool IsWritable() const = 0;
  virtual Status GetHealth() const = 0;
  virtual Status Close() = 0;
};

template <class D>
class AnyDBM::Model : public Interface {
  using Cursor = CursorModel<decltype(std::declval<D&>().MakeIterator())>;

 public:
  explicit Model(std::unique_ptr<D> db) : db_(std::move(db)) {}
  void Take(std::unique_ptr<D> db) { db_ = std::move(db); }
  Status Process(std::string_view key, UpdateRef visitor) override { return db_->Process(key, visitor); }
  Status Process(std::string_view key, BlindUpdateRef visitor) override { return db_->Process(key, visitor); }
  Status Process(std::string_view key, ReadRef visitor) override { return db_->Process(key, visitor); }
  Status Fetch(std::string_view key, SinkRef sink) override { return db_->Fetch(key, sink); }
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter) override {
    return db_->Append(key, value, delimiter);
  }
  Status ProcessMulti(Keys keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown) override {
    return db_->ProcessMulti(keys, visitor, expiry_shown);
  }
  Status ProcessMulti(Keys keys, MultiReadRef visitor) override { return db_->ProcessMulti(keys, visitor); }
  const Expiry* expiry() const override { return db_->expiry(); }
  Status SetExpiry(std::string_view key, std::uint64_t expire_at) override { return db_->SetExpiry(key, expire_at); }
  StatusOr<std::uint64_t> GetExpiry(std::string_view key) override { return db_->GetExpiry(key); }
  StatusOr<std::uint64_t> RemoveExpired() override { return db_->RemoveExpired(); }
  Status Write(const WriteBatch& batch) override { return db_->Write(batch); }
  std::uint64_t AppliedIndex() const override { return db_->AppliedIndex(); }
  Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) override { return db_->FetchMulti(keys, sink, arrived); }
  void Prefetch(Keys keys) const override { db_->Prefetch(keys); }
  bool PrefetchReads() const override { return db_->PrefetchReads(); }
  Status ProcessEach(EachRef visitor) override { return db_->ProcessEach(visitor); }
  Status ProcessEachParallel(unsigned num_threads, EachRef visitor) override { return db_->ProcessEachParallel(num_threads, visitor); }
  Status ProcessState(StateRef visitor, const OnDamage& on_damage) override { return db_->ProcessState(visitor, on_damage); }
  std::unique_ptr<CursorInterface> MakeCursor() override { return std::make_unique<Cursor>(db_->MakeIterator()); }
  bool IsOrdered() const override { return Cursor::kIsOrdered; }
  Order KeyOrder() const override {
    if constexpr (requires { &D::CompareKeys; }) return &D::CompareKeys;
    return nullptr;
  }
  bool HasPrefixRange() const override {
    return requires(D & db) { db.PrefixRange(std::string_view()); };
  }
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) override {
    if constexpr (OrderedDBM<D>) return db_->CountRange(from, to);
    HAKO_RETURN_IF_ERROR(CheckIdle());
    return NoOrderError();
  }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) override {
    if constexpr (OrderedDBM<D>) return db_->RemoveRange(from, to);
    HAKO_RETURN_IF_ERROR(CheckIdle());
    return NoOrderError();
  }
  std::uint64_t Count() const override { return db_->Count(); }
  Status Clear() override { return db_->Clear(); }
  Status Synchronize(SyncMode mode) override { return db_->Synchronize(mode); }
  std::uint64_t LastLsn() override {
    if constexpr (requires { typename D::LogFile; }) return db_->LastLsn();
    return 0;
  }
  Status WaitDurable(std::uint64_t lsn) override {
    if constexpr (requires { typename D::LogFile; }) return db_->WaitDurable(lsn);
    return Synchronize(SyncMode::kHard);
  }
  bool ShouldBeRebuilt() override {
    if constexpr (requires { db_->ShouldBeRebuilt(); }) return db_->ShouldBeRebuilt();
    return false;
  }
  Status Rebuild() override {
    if constexpr (requires { db_->Rebuild(); }) return db_->Rebuild();
    return CheckIdle();
  }
  Status CopyTo(const std::string& path) override {
    if constexpr (requires { db_->CopyTo(path); }) return db_->CopyTo(path);
    if constexpr (requires { db_->Save(path); }) return db_->Save(path);
    HAKO_RETURN_IF_ERROR(CheckIdle());
    return absl::UnimplementedError("this kind of database cannot be copied to a path");
  }
  Status Verify() override { return db_->Verify(); }
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options) override {
    if constexpr (requires { db_->Scrub(options); }) return db_->Scrub(options);
    HAKO_RETURN_IF_ERROR(CheckIdle());
    ScrubProgress nothing;
    nothing.is_complete = true;
    return nothing;
  }
  Stats GetStats() override { return db_->GetStats(); }
  Inspection Inspect() override { return db_->Inspect(); }
  bool IsWritable() const override {
    if constexpr (requires { db_->IsWritable(); }) return db_->IsWritable();
    return true;
  }
  Status GetHealth() const override { return db_->GetHealth(); }
  Status Close() override { return db_->Close(); }

 protected:
  // The status of a call that the kind does not support.
  Status CheckIdle() {
    if constexpr (requires { db_->CheckIdle(); }) return db_->CheckIdle();
    return absl::OkStatus();
  }
  std::unique_ptr<D> db_;
};

template <DBM D>
AnyDBM::AnyDBM(std::unique_ptr<D> db) : inside_(std::make_unique<Model<D>>(std::move(db))) {}

template <class D, class OpenD>
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::Over(OpenD&& open) {
  auto model = std::make_unique<Model<D>>(nullptr);
  Model<D>& inside = *model;
  std::unique_ptr<AnyDBM> any(new AnyDBM(std::unique_ptr<Interface>(std::move(model))));
  HAKO_ASSIGN_OR_RETURN(auto db, open());
  inside.Take(std::move(db));
  return any;
}

template <class Mapped, class Positional, class Options>
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenInFile(const AnyOptions& options, const Options& of_kind) {
  if (options.path.empty())
    return absl::InvalidArgumentError(absl::StrCat("a database of kind ", ToAbsl(options.ResolvedKind()), " needs a file name"));
  if (options.device == "mmap") {
    return Over<Mapped>([&] { return Mapped::Open(options.path, of_kind, options.file); });
  }
  if (options.device == "pos") {
    return Over<Positional>([&] { return Positional::Open(options.path, of_kind, options.file); });
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown file type '", options.device, "'"));
}

template <Visitor V>
Status AnyDBM::Process(StringArg key, V&& visitor) {
  using Plain = std::remove_reference_t<V>;
  if constexpr (UpdateVisitor<Plain>) {
    return inside_->Process(key, UpdateRef(visitor));
  } else if constexpr (BlindVisitor<Plain>) {
    return inside_->Process(key, BlindUpdateRef(visitor));
  } else {
    return inside_->Process(key, ReadRef(visitor));
  }
}

template <Sink S>
Status AnyDBM::Fetch(StringArg key, S&& sink) {
  return inside_->Fetch(key, SinkRef(sink));
}

template <MultiVisitor V>
Status AnyDBM::ProcessMulti(std::span<const std::string_view> keys, V&& visitor) {
  if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
    return inside_->ProcessMulti(keys, MultiReadRef(visitor));
  } else {
    return inside_->ProcessMulti(keys, MultiUpdateRef(visitor), {});
  }
}

template <class S, class F>
Status AnyDBM::FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) {
  return inside_->FetchMulti(keys, MultiSinkRef(sink), ArrivedRef(arrived));
}

template <EachVisitor V>
Status AnyDBM::ProcessEach(V&& visitor) {
  return inside_->ProcessEach(EachRef(visitor));
}

template <EachVisitor V>
Status AnyDBM::ProcessEachParallel(unsigned num_threads, V&& visitor) {
  return inside_->ProcessEachParallel(num_threads, EachRef(visitor));
}

inline Status AnyDBM::ProcessState(StateRef visitor, const OnDamage& on_damage) { return inside_->ProcessState(visitor, on_damage); }

inline void AnyDBM::Iterator::First() {
  if (inside_ != nullptr) inside_->First();
}
inline void AnyDBM::Iterator::Jump(StringArg key) {
  if (inside_ != nullptr) inside_->Jump(key);
}
inline void AnyDBM::Iterator::Next() {
  if (inside_ != nullptr) inside_->Next();
}
inline void AnyDBM::Iterator::Last() {
  if (inside_ != nullptr) inside_->Last();
}
inline void AnyDBM::Iterator::JumpLower(StringArg key, bool inclusive) {
  if (inside_ != nullptr) inside_->JumpLower(key, inclusive);
}
inline void AnyDBM::Iterator::JumpUpper(StringArg key, bool inclusive) {
  if (inside_ != nullptr) inside_->JumpUpper(key, inclusive);
}
inline void AnyDBM::Iterator::Previous() {
  if (inside_ != nullptr) inside_->Previous();
}
inline bool AnyDBM::Iterator::Valid() const { return inside_ != nullptr && inside_->Valid(); }
inline std::string_view AnyDBM::Iterator::key() const { return inside_->key(); }
inline std::string_view AnyDBM::Iterator::value() const { return inside_->value(); }
inline std::uint64_t AnyDBM::Iterator::expire_at() const { return inside_->expire_at(); }
inline const Status& AnyDBM::Iterator::status() const {
  if (inside_ != nullptr) return inside_->status();
  static const Status no_memory = NoMemoryError();
  return no_memory;
}
inline bool AnyDBM::Iterator::SkipDamage() { return inside_ != nullptr && inside_->SkipDamage(); }
inline AnyDBM::Iterator::Iterator(AnyDBM* database, std::unique_ptr<CursorInterface> inside)
    : database_(database), inside_(std::move(inside)) {}

inline AnyDBM::AnyDBM(std::unique_ptr<Interface> inside) : inside_(std::move(inside)) {}
inline AnyDBM::~AnyDBM() = default;
inline Status AnyDBM::Append(StringArg key, StringArg value, StringArg delimiter) { return inside_->Append(key, value, delimiter); }
inline Status AnyDBM::ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown) {
  return inside_->ProcessMulti(keys, visitor, expiry_shown);
}
inline const Expiry* AnyDBM::expiry() const { return inside_->expiry(); }
inline Status AnyDBM::SetExpiry(StringArg key, IntegerArg<std::uint64_t> expire_at) { return inside_->SetExpiry(key, expire_at); }
inline StatusOr<std::uint64_t> AnyDBM::GetExpiry(StringArg key) { return inside_->GetExpiry(key); }
inline StatusOr<std::uint64_t> AnyDBM::RemoveExpired() { return inside_->RemoveExpired(); }
inline void AnyDBM::Prefetch(std::span<const std::string_view> keys) const { inside_->Prefetch(keys); }
inline bool AnyDBM::PrefetchReads() const { return inside_->PrefetchReads(); }
inline AnyDBM::Iterator AnyDBM::MakeIterator() {
  HAKO_TRY { return Iterator(this, inside_->MakeCursor()); }
  HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
  return Iterator(this, nullptr);
#endif
}
inline bool AnyDBM::IsOrdered() const { return inside_->IsOrdered(); }
inline AnyDBM::Order AnyDBM::KeyOrder() const { return inside_->KeyOrder(); }

inline RangeView<AnyDBM::Iterator, true> AnyDBM::Range() {
  const auto start = [](Iterator& it) {
    it.First();
    return std::nullopt;
  };
  return {MakeIterator(), start, inside_->KeyOrder()};
}
inline RangeView<AnyDBM::Iterator, true> AnyDBM::Range(StringArg from, std::optional<StringArg> to) {
  const auto start = [from, to](Iterator& it) {
    it.JumpUpper(from, true);
    return std::optional<std::string>(to);
  };
  return {MakeIterator(), start, inside_->KeyOrder()};
}
inline RangeView<AnyDBM::Iterator, false> AnyDBM::ReverseRange() {
  const auto start = [](Iterator& it) {
    it.Last();
    return std::nullopt;
  };
  return {MakeIterator(), start, inside_->KeyOrder()};
}
inline RangeView<AnyDBM::Iterator, false> AnyDBM::ReverseRange(StringArg from, std::optional<StringArg> to) {
  const auto start = [from, to](Iterator& it) {
    to ? it.JumpLower(*to) : it.Last();
    return std::string(from);
  };
  return {MakeIterator(), start, inside_->KeyOrder()};
}
inline RangeView<AnyDBM::Iterator, true> AnyDBM::PrefixRange(StringArg prefix) {
  const auto start = [this, prefix](Iterator& it) -> std::optional<std::string> {
    it.JumpUpper(prefix, true);
    if (inside_->HasPrefixRange() || !inside_->IsOrdered()) return EndOfPrefix(prefix);
    if (it.inside_ != nullptr)
      it.inside_->Refuse(
          absl::UnimplementedError("PrefixRange needs the bytewise order, in which keys of one prefix are neighbours: Search "
                                   "(dbm/search.h) finds them in any order"));
    return std::nullopt;
  };
  return {MakeIterator(), start, inside_->KeyOrder()};
}
inline StatusOr<std::uint64_t> AnyDBM::CountRange(StringArg from, std::optional<StringArg> to) { return inside_->CountRange(from, to); }
inline StatusOr<std::uint64_t> AnyDBM::RemoveRange(StringArg from, std::optional<StringArg> to) { return inside_->RemoveRange(from, to); }
inline Status AnyDBM::Write(const WriteBatch& batch, const WriteOptions& options) {
  HAKO_RETURN_IF_ERROR(inside_->Write(batch));
  return options.durability == Durability::kPower ? WaitDurable(LastLsn()) : absl::OkStatus();
}
inline std::uint64_t AnyDBM::AppliedIndex() const { return inside_->AppliedIndex(); }
inline std::uint64_t AnyDBM::Count() const { return inside_->Count(); }
inline Status AnyDBM::Clear() { return inside_->Clear(); }
inline Status AnyDBM::Synchronize(SyncMode mode) { return inside_->Synchronize(mode); }
inline std::uint64_t AnyDBM::LastLsn() { return inside_->LastLsn(); }
inline Status AnyDBM::WaitDurable(std::uint64_t lsn) { return inside_->WaitDurable(lsn); }
inline bool AnyDBM::ShouldBeRebuilt() { return inside_->ShouldBeRebuilt(); }
inline Status AnyDBM::Rebuild() { return inside_->Rebuild(); }
inline Status AnyDBM::CopyTo(const std::string& path) { return inside_->CopyTo(path); }
inline Status AnyDBM::Verify() { return inside_->Verify(); }
inline StatusOr<ScrubProgress> AnyDBM::Scrub(const ScrubOptions& options) { return inside_->Scrub(options); }
inline Stats AnyDBM::GetStats() { return inside_->GetStats(); }
inline Inspection AnyDBM::Inspect() { return inside_->Inspect(); }
inline bool AnyDBM::IsWritable() const { return inside_->IsWritable(); }
inline Status AnyDBM::GetHealth() const { return inside_->GetHealth(); }
inline Status AnyDBM::Close() { return inside_->Close(); }

}  // namespace hako
