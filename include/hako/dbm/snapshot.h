// A read-only view of an ordered database as it was at one moment, beside readers and writers.
//
//   HAKO_ASSIGN_OR_RETURN(auto snapshot, db->Snapshot());
//   HAKO_ASSIGN_OR_RETURN(std::string value, snapshot->Get("key"));
//   for (auto [key, value] : snapshot->Range("a", "b")) ...
//
// Taking it stops writers for a moment, whatever the size of the database. It shows each batch as a whole or not at
// all. From then on a writer copies the records of a leaf before it changes the leaf for the first time, so a
// snapshot takes memory for the leaves that were changed since (bytes()). If all snapshots of a database together
// take more than its option snapshot_bytes, the oldest one is cancelled: its reads return ResourceExhausted. Updates
// never fail or wait for a snapshot. Clear makes the reads of earlier snapshots return Aborted.
//
// AnyDBM::Snapshot (dbm/any_dbm.h) and TableDBM::Snapshot (table/table_dbm.h) are made of one.
//
// Where a writer could not read a damaged value that it had to copy, the readers of that leaf get DataLoss.
//
// Records that had expired at the moment are absent; those that expire later stay.
//
// Nothing of a snapshot survives the process, and a crash leaves nothing behind. The database must outlive the snapshot;
// after its Close, and in a forked child, reads return FailedPrecondition.
//
// Thread-safe. Each iterator and each range is used by one thread, and holds the moment as long as it exists. The end of
// the last holder stops writers for a moment; it must not be in a visitor of the database.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hako/array/record_key.h"
#include "hako/base/comparator.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/read_operations.h"
#include "hako/dbm/snapshot_cursor.h"
#include "hako/dbm/write_batch.h"

namespace hako {

// Inherits
//   ReadOperations (dbm/read_operations.h)  Get, GetOr, GetSize, Contains, GetMulti, Export
//   OrderedReads (dbm/ordered_operations.h)
//     Range, ReverseRange, PrefixRange  records of [from, to) as an input range
//     CountRange                        the number of records of [from, to)
template <class D, Comparator Compare>
class SnapshotView : public ReadOperations<SnapshotView<D, Compare>>, public OrderedReads<SnapshotView<D, Compare>, Compare> {
  using Capture = typename D::Capture;
  using Key = typename Capture::KeyView;

 public:
  using Iterator = SnapshotCursor<typename D::Iterator, Capture>;  // see dbm/snapshot_cursor.h

  // Call Snapshot of the database instead.
  static StatusOr<std::unique_ptr<SnapshotView>> Take(D& database) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(database.CheckIdle());
    auto moment = std::make_shared<Moment>(database);
    const auto note = [&] {
      moment->count = database.Count();
      moment->applied_index = database.AppliedIndex();
      moment->now = database.expiry() != nullptr ? database.expiry()->Now() : 0;
    };
    HAKO_RETURN_IF_ERROR(database.BeginCapture(&moment->captured, note));
    moment->has_begun = true;
    return std::unique_ptr<SnapshotView>(new SnapshotView(std::move(moment)));
  }
  HAKO_OR_NO_MEMORY
  SnapshotView(const SnapshotView&) = delete;

  // See dbm/dbm.h.
  template <Sink S>
  Status Fetch(StringArg key, S&& sink) HAKO_TRY {
    if (database_.expiry() != nullptr) [[unlikely]]
      return FetchLive(key, sink);
    return FetchStored(key, sink, [&] { return database_.Fetch(key, sink); });
  }
  HAKO_OR_NO_MEMORY
  // Fetches each key: calls sink(index, size), then arrived(index, found).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Status status = Fetch(keys[i], [&](std::size_t size) { return sink(i, size); });
      if (!status.ok() && !absl::IsNotFound(status)) return status;
      arrived(i, status.ok());
    }
    return absl::OkStatus();
  }
  // Shows the value, or nullopt, to a visitor that only reads.
  template <ReadVisitor V>
  Status Process(StringArg key, V&& visitor) {
    std::string value;
    const Status status = this->Get(key, &value);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    visitor(status.ok() ? std::optional<std::string_view>(value) : std::nullopt);
    return absl::OkStatus();
  }
  // Shows all records in order.
  Status ProcessEach(EachRef visitor) HAKO_TRY {
    Iterator it = MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
    return it.status();
  }
  HAKO_OR_NO_MEMORY

  // Shows all records, with their times: see dbm/dbm.h.
  Status ProcessState(StateRef visitor, const OnDamage& on_damage = {}) HAKO_TRY {
    Iterator it = MakeIterator();
    for (it.First(); it.Valid() || (on_damage && it.PassDamage(on_damage)); it.Next())
      HAKO_RETURN_IF_ERROR(visitor(it.key(), it.value(), it.expire_at()));
    return it.status();
  }
  HAKO_OR_NO_MEMORY
  // Returns when the record of `key` expires; 0 = never. Returns NotFound if the record is absent.
  StatusOr<std::uint64_t> GetExpiry(StringArg key) HAKO_TRY {
    if (database_.expiry() == nullptr) {
      HAKO_RETURN_IF_ERROR(this->GetSize(key).status());
      return Expiry::kNever;
    }
    std::string stored;
    Expiry::Record record;
    HAKO_RETURN_IF_ERROR(FetchRecord(key, &stored, &record));
    return record.time;
  }
  HAKO_OR_NO_MEMORY

  // Returns a cursor: see dbm/snapshot_cursor.h.
  Iterator MakeIterator() { return Iterator(database_.MakeStoredIterator(), {moment_, &captured_}, database_.expiry(), now_); }

  // Creates or replaces a database of the same kind at `path`, which appears whole and durable or not at all: with the
  // records, their times and the applied index of the moment, and the type and metadata of the application as they are
  // now. Errors are those of CopyTo of the database.
  Status CopyTo(const std::string& path) requires requires(D& db) {
    db.CopyMoment(path, 0, [](D&) { return Status(); });
  }
  HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckReads());
    return database_.CopyMoment(path, now_, [this](D& copy) -> Status {
      const auto set = [&](std::string_view key, std::string_view value, std::uint64_t time) {
        return copy.Process(key, Action::Set(value, time));
      };
      HAKO_RETURN_IF_ERROR(ProcessState(set));
      WriteBatch batch;
      if (AppliedIndex() != 0) batch.SetAppliedIndex(AppliedIndex());
      return copy.Write(batch);
    });
  }
  HAKO_OR_NO_MEMORY
  // As CopyTo, of a database in memory, which saves its records to a file (dbm/memory_home.h).
  Status Save(const std::string& path) requires requires(D& db) { db.Save(path); }
  HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckReads());
    return database_.SaveMoment(path, AppliedIndex(), now_, [this](auto&& add) -> Status {
      Iterator it(database_.MakeStoredIterator(), {moment_, &captured_}, nullptr, now_);
      for (it.First(); it.Valid(); it.Next()) HAKO_RETURN_IF_ERROR(add(it.key(), it.value()));
      return it.status();
    });
  }
  HAKO_OR_NO_MEMORY

  // The number of records, with those that had expired and were not removed yet.
  std::uint64_t Count() const { return moment_->count; }
  // See dbm/write_batch.h.
  std::uint64_t AppliedIndex() const { return moment_->applied_index; }
  // The memory that the snapshot takes for records that were changed since.
  std::uint64_t bytes() const { return captured_.bytes(); }
  // Ends the snapshot before its destructor does: later reads return FailedPrecondition, also those of its iterators.
  // REQUIRES: no other thread uses the snapshot (unchecked: it does not count its users)
  Status Close() HAKO_TRY {
    if (database_.CheckOpen().ok()) HAKO_RETURN_IF_ERROR(database_.CheckIdle());
    moment_->End();
    captured_.Fail(absl::FailedPreconditionError("the snapshot was closed"));
    return absl::OkStatus();
  }
  HAKO_OR_NO_MEMORY
  // The database of the snapshot.
  D& database() const { return database_; }
  // OK, or why reads fail.
  Status CheckReads() const {
    HAKO_RETURN_IF_ERROR(database_.CheckReads());
    return captured_.error();
  }
  // For CountRange.
  StatusOr<std::uint64_t> CountKeys(std::string_view from, std::optional<std::string_view> to) HAKO_TRY {
    return this->CountShown(from, to);
  }
  HAKO_OR_NO_MEMORY

 private:
  // Held by the snapshot and its iterators; its end ends the capture.
  struct Moment {
    explicit Moment(D& of) : database(of) {}
    Moment(const Moment&) = delete;
    ~Moment() { End(); }
    void End() {
      if (std::exchange(has_begun, false) && database.CheckOpen().ok()) database.EndCapture(&captured);
    }
    D& database;
    Capture captured{true};
    bool has_begun = false;
    std::uint64_t count = 0, applied_index = 0, now = 0;
  };

  explicit SnapshotView(std::shared_ptr<Moment> moment)
      : moment_(std::move(moment)), database_(moment_->database), captured_(moment_->captured), now_(moment_->now) {}

  // Calls read(), which copies the value in the database to the sink, unless the key lies in a captured range.
  template <class S, class Read>
  HAKO_INLINE Status FetchStored(std::string_view key, S& sink, Read&& read) {
    const std::uint64_t version = captured_.version();
    std::optional<Status> captured;
    if (version != 0) HAKO_RETURN_IF_ERROR(FetchCaptured(key, sink, &captured));
    if (captured) return *std::move(captured);
    Status status = read();
    if (captured_.version() == version) [[likely]]
      return status;
    HAKO_RETURN_IF_ERROR(FetchCaptured(key, sink, &captured));  // writers have captured leaves since
    return captured ? *std::move(captured) : status;
  }
  // Sets *captured if the key lies in a captured range.
  template <class S>
  [[gnu::noinline]] Status FetchCaptured(std::string_view key, S& sink, std::optional<Status>* captured) {
    HAKO_RETURN_IF_ERROR(database_.CheckReads());
    Key name{};
    if constexpr (std::is_same_v<Key, std::string_view>) {
      name = key;
    } else {
      HAKO_ASSIGN_OR_RETURN(name, RecordKey::Parse(key));
    }
    HAKO_ASSIGN_OR_RETURN(const auto leaf, captured_.LeafOf(name));
    if (leaf == nullptr) return absl::OkStatus();
    const std::size_t at = leaf->LowerBound(name);
    if (at == leaf->size() || typename Capture::LessKey()(name, leaf->key(at))) {
      HAKO_RETURN_IF_ERROR(leaf->unread());  // the record may be one that could not be copied
      *captured = AbsentError();
      return absl::OkStatus();
    }
    const std::string_view value = leaf->value(at);
    if (char* const out = sink(value.size()); out != nullptr) std::memcpy(out, value.data(), value.size());
    *captured = absl::OkStatus();
    return absl::OkStatus();
  }
  // Fetch in a database whose values have the stored form.
  template <class S>
  Status FetchLive(std::string_view key, S& sink) {
    std::string stored;
    Expiry::Record record;
    HAKO_RETURN_IF_ERROR(FetchRecord(key, &stored, &record));
    if (char* const out = sink(record.value.size()); out != nullptr) std::memcpy(out, record.value.data(), record.value.size());
    return absl::OkStatus();
  }
  // Reads a record in its stored form, of which *record is a view.
  Status FetchRecord(std::string_view key, std::string* stored, Expiry::Record* record) {
    internal::StringSink into{stored};
    HAKO_RETURN_IF_ERROR(FetchStored(key, into, [&] { return database_.GetStored(key, stored); }));
    if (!into.has_room) return NoMemoryError();
    const std::optional<Expiry::Record> found = Expiry::Split(*stored);
    if (!found) return Expiry::MalformedError();
    if (database_.expiry()->WasPast(found->time, now_)) return AbsentError();
    *record = *found;
    return absl::OkStatus();
  }

  const std::shared_ptr<Moment> moment_;
  D& database_;
  Capture& captured_;
  const std::uint64_t now_;
};

}  // namespace hako
