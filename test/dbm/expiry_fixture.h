// A database with expiry of the kind that the parameter names, and a clock that the test sets.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_options.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {

inline constexpr std::uint64_t kStart = 1'700'000'000'000;
inline std::atomic<std::uint64_t> the_time{kStart};
inline std::uint64_t TheTime() { return the_time.load(); }

class ExpiryTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    the_time = kStart;
    db_ = Open("expiry=true").value();
  }
  void TearDown() override {
    if (db_ == nullptr) return;
    EXPECT_THAT(db_->Verify(), IsOk());
    EXPECT_THAT(db_->Close(), IsOk());
  }

  // The name of the parameter has the suffix of the file, and options.
  StatusOr<std::unique_ptr<AnyDBM>> Open(std::string_view more) {
    const std::string name = GetParam();
    const bool has_file = name[0] != '?';
    HAKO_ASSIGN_OR_RETURN(AnyOptions options, ParseAnyOptions(absl::StrCat(has_file ? dir_.path() + "/db" : "", name,
                                                                           name.find('?') == name.npos ? "?" : ",", ToAbsl(more))));
    options.clock = &TheTime;
    return AnyDBM::Open(options);
  }
  bool HasFile() const { return GetParam()[0] != '?'; }
  void Reopen(std::string_view more = "mode=write") {
    ASSERT_THAT(db_->Close(), IsOk());
    db_ = nullptr;
    StatusOr<std::unique_ptr<AnyDBM>> opened = Open(more);
    ASSERT_THAT(opened.status(), IsOk());
    db_ = *std::move(opened);
  }
  std::optional<std::string> Get(std::string_view key) {
    std::string value = "before";
    const Status status = db_->Get(key, &value);
    EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
    return status.ok() ? std::optional(value) : std::nullopt;
  }
  std::vector<std::string> Keys() {
    std::vector<std::string> keys;
    auto it = db_->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) keys.emplace_back(it.key());
    EXPECT_THAT(it.status(), IsOk());
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  const TempDir dir_;
  std::unique_ptr<AnyDBM> db_;
};

// Parameters: the suffix of the file, and options.
inline const auto kExpiryFiles =
    testing::Values(".hks", ".hks?dbm=baby", ".hkh", ".hkt", ".hkh?file=pos", ".hkt?file=pos", ".hkh?direct=true");
inline const auto kExpiryMemory = testing::Values("?dbm=tiny", "?dbm=baby");

}  // namespace hako
