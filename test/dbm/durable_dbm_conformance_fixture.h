// The suite DurableDBMConformance before its tests: see durable_dbm_conformance.h.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/wall_clock.h"
#include "hako/dbm/options.h"
#include "hako/file/file.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {

template <class Surroundings>
class DurableDBMConformance : public DBMConformance<Surroundings> {
 protected:
  using FileType = typename Surroundings::FileType;

  void Reopen() {
    ASSERT_THAT(this->db_->Verify(), IsOk());
    auto opened = this->surroundings_.Reopen(std::move(this->db_));
    ASSERT_THAT(opened, IsOk());
    this->db_ = *std::move(opened);
  }

  void CloseDatabase() {
    ASSERT_THAT(this->db_->Close(), IsOk());
    this->db_.reset();
  }

  // `count` records of about `size` bytes.
  Records Load(int count, std::size_t size) {
    Records records;
    for (int i = 0; i < count; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(i));
      records[key] = CheckedValue(key, size + static_cast<std::size_t>(i % 16), 1);
      EXPECT_THAT(this->db_->Set(key, records[key]), IsOk());
    }
    return records;
  }

  void Remove(Records* records, std::uint64_t number) {
    ASSERT_THAT(this->db_->Remove(NumberedKey(number)), IsOk());
    records->erase(NumberedKey(number));
  }

  void WriteFile(const std::string& name, std::string_view bytes) {
    ASSERT_OK_AND_ASSIGN(FileType file, this->surroundings_.files.Open(name));
    ASSERT_THAT(file.Resize(bytes.size()), IsOk());
    ASSERT_THAT(file.WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
    ASSERT_THAT(file.Close(), IsOk());
  }

  std::string ReadFile(const std::string& name) {
    auto file = this->surroundings_.files.Open(name);
    EXPECT_THAT(file, IsOk());
    const std::vector<std::byte> bytes = ReadWholeFile(*file);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
};

TYPED_TEST_SUITE_P(DurableDBMConformance);

}  // namespace hako
