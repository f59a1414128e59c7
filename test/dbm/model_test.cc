// Random operations on every DBM x File beside the model, whose results must be the same. Few keys,
// so that records are constantly removed, overwritten and resized; the database is reopened now and
// then.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/direct_file.h"
#include "support/model_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_types.h"

namespace hako {
namespace {

constexpr int kOperations = 250'000 / kSlowdown;  // of each type
constexpr int kOperationsPerLife = 5000;

// One operation, drawn beforehand so that the database and the model do the same.
struct Operation {
  enum class Kind {
    kGet,
    kGetSpan,
    kSet,
    kInsert,
    kReplace,
    kRemove,
    kTake,
    kAppend,
    kCompareExchange,
    kIncrement,
    kProcess,
    kGetMulti,
    kProcessMulti,
    kExchangeMulti,
    kRekey,
    kCount
  };
  Kind kind;
  std::string key;
  std::string value;
  std::uint64_t choice;
  std::vector<std::string_view> several{};  // keys, some of them equal now and then

  Operation(Random& random, const std::vector<std::string>& keys)
      : kind(static_cast<Kind>(random.Below(static_cast<std::uint64_t>(Kind::kCount)))),
        key(keys[random.Below(keys.size())]),
        value(random.Bytes(random.OneIn(200) ? random.Below(70'000) : random.SkewedSize(9))),
        choice(random.Next()) {
    for (std::uint64_t n = random.Below(6); n > 0; --n) several.push_back(keys[random.Below(keys.size())]);
  }

  // Carries it out and returns its results as text.
  template <class D>
  std::string ApplyTo(D& db) const {
    std::string out = "untouched";
    const auto told = [&out](const Status& status) { return std::to_string(static_cast<int>(status.code())) + ' ' + out; };
    switch (kind) {
      case Kind::kGet: {
        const Status status = db.Get(key, &out);
        return status.ok() ? told(status) : std::to_string(static_cast<int>(status.code()));
      }
      case Kind::kGetSpan: {
        char span[64] = {};
        const auto size = db.Get(key, std::span<char>(span));
        out = std::to_string(size.value_or(0)) + std::string(span, sizeof(span));
        return told(size.status());
      }
      case Kind::kSet:
        return told(db.Set(key, value, {.old_value = choice % 2 == 0 ? &out : nullptr}));
      case Kind::kInsert:
        return told(db.Set(key, value, {.overwrite = false, .old_value = &out}));
      case Kind::kReplace:
        return told(db.Replace(key, value));
      case Kind::kRemove:
        return told(db.Remove(key));
      case Kind::kTake:
        return told(db.Remove(key, &out));
      case Kind::kAppend:
        return told(db.Append(key, value.substr(0, 100), ";"));
      case Kind::kCompareExchange: {
        const std::string current = db.GetOr(key, "").value();
        const Expect expected = choice % 3 == 0 ? Expect::Absent() : choice % 3 == 1 ? Expect::Any() : Expect::Value(current);
        const Action desired = choice % 7 == 0 ? Action::Remove() : choice % 7 == 1 ? Action::Keep() : Action::Set(value);
        bool found = false;
        const Status status = db.CompareExchange(key, expected, desired, &out, &found);
        return told(status) + (found ? " found" : "");
      }
      case Kind::kIncrement:
        if (choice % 4 == 0) (void)db.Remove(key);
        return std::to_string(db.Increment(key, static_cast<std::int64_t>(choice), 5).value_or(-77));
      case Kind::kGetMulti:
        return told(
            db.GetMulti(several, [&](std::size_t, std::optional<std::string_view> found) -> void { out += found.value_or("none"); }));
      case Kind::kProcessMulti:
        return told(db.ProcessMulti(several, [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
          out += found.value_or("none");
          if (choice % 8 == i) return std::nullopt;
          const std::uint64_t way = choice >> (8 * i) & 7;
          return way == 0 ? Action::Remove() : way == 1 ? Action::Keep() : Action::Set(std::string_view(value).substr(value.size() / way));
        }));
      case Kind::kExchangeMulti: {
        std::vector<Exchange> exchanges;
        for (std::size_t i = 0; i < several.size(); ++i) {
          const std::uint64_t way = choice >> (8 * i) & 15;
          const Expect expected = way < 14 ? (db.Contains(several[i]).value() ? Expect::Any() : Expect::Absent()) : Expect::Value(value);
          exchanges.push_back({several[i], expected, way % 2 == 0 ? Action::Set(value) : Action::Remove()});
        }
        return told(db.CompareExchangeMulti(exchanges));
      }
      case Kind::kRekey: {
        const RekeyOptions options{.overwrite = choice % 2 == 0, .copying = choice % 3 == 0, .value = &out};
        return told(db.Rekey(key, several.empty() ? key : several[0], options));
      }
      default:
        return told(db.Process(key, [&](std::optional<std::string_view> found) {
          if (found) out.assign(*found);
          return choice % 4 == 0 ? Action::Remove() : choice % 4 == 1 ? Action::Keep() : Action::Set(value);
        }));
    }
  }
};

template <class Surroundings>
class ModelTest : public testing::Test {};

using Types = TestTypes<
    testing::Types<HashSurroundings<MemoryMapParallelFile>, TinySurroundings<MemoryMapParallelFile>, BabySurroundings<MemoryFile, 128>,
                   TreeSurroundings<MemoryFile, 128, kSmallestCache>, HashSurroundings<DirectFile<512>>>,
    HashSurroundings<PositionalParallelFile>, HashSurroundings<MemoryFile>, HashSurroundings<AnyFile>, TinySurroundings<MemoryFile>,
    BabySurroundings<MemoryMapParallelFile>, TreeSurroundings<MemoryMapParallelFile>,
    TreeSurroundings<DirectFile<1024, 0>, 512, kSmallestCache>>;
TYPED_TEST_SUITE(ModelTest, Types);

// With a cache that is too small for the records.
template <class Surroundings>
constexpr int kSlower = 1;
template <std::uint64_t kBlockSize, std::uint64_t kCacheBytes>
constexpr int kSlower<HashSurroundings<DirectFile<kBlockSize, kCacheBytes>>> = 5;

TYPED_TEST(ModelTest, AgreesWithTheModel) {
  Random random(TestSeed());
  SCOPED_TRACE(TestSeed());
  std::vector<std::string> keys = {""};
  for (int i = 0; i < 200; ++i) keys.push_back(random.Bytes(random.OneIn(20) ? random.Below(3000) : random.SkewedSize(6)));

  TypeParam surroundings;
  ModelDBM model;
  ASSERT_OK_AND_ASSIGN(auto db, surroundings.Open());
  for (int i = 0; i < kOperations / kSlower<TypeParam>; ++i) {
    const Operation operation(random, keys);
    const std::string expected = operation.ApplyTo(model);
    ASSERT_TRUE(operation.ApplyTo(*db) == expected) << "operation " << i << " of kind " << static_cast<int>(operation.kind);
    if (i % 500 == 0 && random.OneIn(2)) {
      ASSERT_THAT(db->Synchronize(random.OneIn(4) ? SyncMode::kHard : SyncMode::kSoft), IsOk());
    }
    if (i % kOperationsPerLife != 0) continue;
    ASSERT_THAT(db->Verify(), IsOk());
    const auto records = model.CopyRecords();
    ASSERT_EQ(db->Count(), records.size());
    const auto listed = i % 2 == 0 ? ListByIterator(*db).records : ListByProcessEach(*db).records;
    ASSERT_TRUE(std::equal(listed.begin(), listed.end(), records.begin(), records.end()));
    if constexpr (requires { db->Rebuild(); }) {
      if (random.OneIn(4)) {
        ASSERT_THAT(db->Rebuild(), IsOk());
      }
    }
    if (random.OneIn(2)) {
      ASSERT_OK_AND_ASSIGN(db, surroundings.Reopen(std::move(db)));
    }
    if (random.OneIn(10)) {
      ASSERT_THAT(db->Clear(), IsOk());
      ASSERT_THAT(model.Clear(), IsOk());
    }
  }
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

}  // namespace
}  // namespace hako
