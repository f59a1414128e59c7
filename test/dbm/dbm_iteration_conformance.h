// The tests of DBMConformance of iterators. Of dbm_conformance.h.
#pragma once

#include "dbm/dbm_conformance_fixture.h"

namespace hako {

TYPED_TEST_P(DBMConformance, IteratorKeepsItsOrderAndJumps) {
  auto& db = *this->db_;
  for (int i = 0; i < 2000; ++i)
    ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), static_cast<std::size_t>(i % 50))), IsOk());
  const Listing all = ListByIterator(db);
  EXPECT_EQ(all.order.size(), 2000u);
  EXPECT_EQ(ListByIterator(db).order, all.order);
  auto it = db.MakeIterator();
  for (const std::size_t start : {std::size_t{0}, std::size_t{1}, std::size_t{777}, all.order.size() - 1}) {
    it.Jump(all.order[start]);
    for (std::size_t i = start; i < all.order.size(); ++i, it.Next()) {
      ASSERT_TRUE(it.Valid());
      ASSERT_EQ(it.key(), all.order[i]);
      ASSERT_EQ(it.value(), CheckedValue(it.key(), it.value().size()));
    }
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), IsOk());
  }
  it.First();
  ASSERT_TRUE(it.Valid());
  EXPECT_EQ(it.key(), all.order[0]);
}

TYPED_TEST_P(DBMConformance, SupportsManyIteratorsAtOnce) {
  auto& db = *this->db_;
  for (int i = 0; i < 100; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  const Listing all = ListByIterator(db);
  std::vector<decltype(db.MakeIterator())> iterators;
  for (int i = 0; i < 100; ++i) iterators.push_back(db.MakeIterator());
  for (std::size_t i = 0; i < iterators.size(); ++i) iterators[i].Jump(all.order[i]);
  for (std::size_t step = 0; step < 100; ++step) {
    for (std::size_t i = 0; i < iterators.size(); ++i) {
      ASSERT_EQ(iterators[i].Valid(), i + step < all.order.size());
      if (!iterators[i].Valid()) continue;
      ASSERT_EQ(iterators[i].key(), all.order[i + step]);
      iterators[i].Next();
    }
  }
}

TYPED_TEST_P(DBMConformance, IteratorContinuesWhileRecordsChange) {
  auto& db = *this->db_;
  constexpr int kRecords = 5000 / kSlowdown;
  for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 20, 1)), IsOk());
  std::set<std::string> shown;
  int grown = 0;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
    const std::string key(it.key());
    ASSERT_TRUE(shown.insert(key).second) << "shown twice: " << key;
    ASSERT_TRUE(SaltOf(key, it.value())) << key;
    if (shown.size() > 2u * kRecords) continue;
    for (int i = 0; i < 4; ++i, ++grown)
      ASSERT_THAT(db.Set("new" + NumberedKey(grown), CheckedValue("new" + NumberedKey(grown), 20, 2)), IsOk());
    ASSERT_THAT(db.Set(key, CheckedValue(key, shown.size() % 300, 3)), IsOk());
  }
  EXPECT_THAT(it.status(), IsOk());
  for (int i = 0; i < kRecords; ++i) EXPECT_EQ(shown.count(NumberedKey(i)), 1u) << i;
  EXPECT_EQ(db.Count(), static_cast<std::uint64_t>(kRecords + grown));
}

TYPED_TEST_P(DBMConformance, IteratorSkipsRemovedRecords) {
  auto& db = *this->db_;
  for (int i = 0; i < 3000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  std::set<std::string> shown;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {  // removes the shown record, and another that it may show next
    const std::string key(it.key());
    ASSERT_TRUE(shown.insert(key).second) << "shown twice: " << key;
    const std::string partner = NumberedKey(2999 - std::stoull(key));
    const bool is_first = shown.count(partner) == 0;
    EXPECT_EQ(db.Remove(key).ok(), is_first);
    EXPECT_EQ(db.Remove(partner).ok(), is_first);
    EXPECT_EQ(it.key(), key) << "the iterator keeps what it showed";
    EXPECT_EQ(it.value(), "value");
  }
  EXPECT_LT(shown.size(), 2000u) << "records that were removed long ago are shown";
  EXPECT_THAT(it.status(), IsOk());
  this->ExpectHolds({});
  it.First();
  EXPECT_FALSE(it.Valid());
}

TYPED_TEST_P(DBMConformance, IteratorEndsAfterClear) {
  auto& db = *this->db_;
  for (int i = 0; i < 3000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  auto it = db.MakeIterator();
  it.First();
  ASSERT_TRUE(it.Valid());
  it.Next();
  ASSERT_THAT(db.Clear(), IsOk());
  ASSERT_THAT(db.Set("after", "clear"), IsOk());
  int steps = 0;
  for (; it.Valid() && steps < 10'000; it.Next()) ++steps;
  EXPECT_LT(steps, 10'000);
}

}  // namespace hako
