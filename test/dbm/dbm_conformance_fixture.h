// The suite DBMConformance before its tests: see dbm_conformance.h.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {

template <class Surroundings>
class DBMConformance : public testing::Test {
 protected:
  using Database = typename Surroundings::Database;

  void SetUp() override { OpenWith(0); }

  void TearDown() override {
    if (db_ == nullptr) return;
    EXPECT_THAT(db_->Verify(), IsOk());
    EXPECT_THAT(db_->Close(), IsOk());
  }

  void OpenWith(std::uint64_t num_records) {
    auto opened = surroundings_.Open(num_records);
    ASSERT_THAT(opened.status(), IsOk());
    db_ = *std::move(opened);
  }

  // Checks that the database has exactly `records`, by every way of reading.
  void ExpectHolds(const Records& records) {
    EXPECT_EQ(db_->Count(), records.size());
    std::string found;
    for (const auto& [key, value] : records) {
      ASSERT_THAT(db_->Get(key, &found), IsOk()) << testing::PrintToString(key);
      ASSERT_TRUE(found == value) << "key " << testing::PrintToString(key) << ": " << found.size() << " bytes, not " << value.size();
    }
    EXPECT_TRUE(ListByIterator(*db_).records == records);
    EXPECT_TRUE(ListByProcessEach(*db_).records == records);
  }

  void SetAll(std::initializer_list<std::pair<std::string_view, std::string_view>> records) {
    for (const auto& [key, value] : records) ASSERT_THAT(db_->Set(key, value), IsOk());
  }

  Surroundings surroundings_;  // outlives the database
  std::unique_ptr<Database> db_;
};

TYPED_TEST_SUITE_P(DBMConformance);

}  // namespace hako
