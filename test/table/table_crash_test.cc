// Kills a table, or cuts the power under it, at any moment of puts, batches, updates by query and the
// creation of indices. It opens with the rows after one of the operations, and Verify finds the
// entries of all indices to be exactly those of the rows. No index is left half built: it is complete
// or gone.
//
// In memory: the file and its log as each write of the log or the file finds them, in the page cache
// after a kill, in any of the versions of their sectors after a power cut. In files: processes that
// are killed while several threads write.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/table/table_dbm.h"
#include "support/crash_child.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Rows = std::map<std::string, std::string>;
using Image = CrashMemory::Image;

StatusOr<Rows> RowsOf(TableDBM& table) {
  Rows rows;
  HAKO_RETURN_IF_ERROR(table.Select().Each([&rows](std::string_view key, const RowView& row) {
    std::string& text = rows[std::string(key)];
    for (std::size_t i = 0; i < row.size(); ++i) text += std::string(row.name(i)) + "=" + row.value(i).ToText() + " ";
    return true;
  }));
  return rows;
}

// Opens what a crash has left, and checks all but the rows, which it returns.
StatusOr<Rows> Checked(TableDBM& table) {
  HAKO_RETURN_IF_ERROR(table.Verify());
  for (const IndexInfo& index : table.Indices()) {
    if (!index.is_ready) return absl::DataLossError(absl::StrCat("index ", index.options.name, " is half built"));
    if (index.options.columns[0].kind != IndexKind::kNumeric) continue;
    // Its entries are those that Verify knows, and a query takes them.
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t by_index, table.Select().Where(Column("n").Numeric() >= -1).Count());
    std::uint64_t by_rows = 0;
    HAKO_RETURN_IF_ERROR(table.Select().Each([&by_rows](std::string_view, const RowView& row) {
      by_rows += row["n"].is_null() ? 0u : 1u;
      return true;
    }));
    if (by_index != by_rows) return absl::DataLossError("the index of numbers has other rows");
  }
  HAKO_ASSIGN_OR_RETURN(Rows rows, RowsOf(table));
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t count, table.Count());
  if (count != rows.size()) return absl::DataLossError("Count is wrong");
  HAKO_RETURN_IF_ERROR(table.Put("works", {{"n", 1}}));
  return rows;
}

// The columns have the same numbers in each life, so that rows have the same text.
const TableOptions kColumns = {.columns = {{"n", {}}, {"s", {}}, {"t", {}}, {"u", {}}}};
const TreeOptions kTree = {.page_size = 512, .cache_bytes = 4 << 20, .type = kTableType};

StatusOr<Rows> Recover(const Image& file, const Image& log) {
  using Database = TreeDBM<MemoryFile>;
  HAKO_ASSIGN_OR_RETURN(auto db, Database::Open(MemoryFile::Of(file), MemoryFile::Of(log), kTree));
  HAKO_ASSIGN_OR_RETURN(auto table, TableDBM::Open(std::move(db), kColumns));
  HAKO_ASSIGN_OR_RETURN(Rows rows, Checked(*table));
  HAKO_RETURN_IF_ERROR(table->Close());
  return rows;
}

const IndexOptions kIndices[] = {{.columns = {{"n", IndexKind::kNumeric}}},
                                 {.columns = {{"t", IndexKind::kToken}}},
                                 {.columns = {{"t", IndexKind::kQGram}}, .positions = true},
                                 {.columns = {{"s"}}, .covering = {"n"}},
                                 {.name = "unique", .columns = {{"s"}, {"u"}}, .unique = true}};

// One table on a device that may crash.
class Machine {
  using Database = TreeDBM<PositionalCrashFile>;

 public:
  explicit Machine(std::uint64_t seed) : random_(seed) {}

  void Live(int num_operations) {
    for (const auto& memory : {file_, log_}) memory->on_event = [this] { MaybeCheck(12); };
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(PositionalCrashFile(file_), PositionalCrashFile(log_), kTree));
    ASSERT_OK_AND_ASSIGN(table_, TableDBM::Open(std::move(db), kColumns));
    for (int i = 0; i < num_operations && !testing::Test::HasFatalFailure(); ++i) {
      ASSERT_THAT(Operate(), IsOk());
      acknowledged_ = states_.size() - 1;
      MaybeCheck(3);
    }
    ASSERT_THAT(table_->Close(), IsOk());
    for (const auto& memory : {file_, log_}) memory->on_event = [] {};
  }
  std::uint64_t num_crashes() const { return num_crashes_; }

 private:
  Status Operate() {
    Rows after = states_.back();
    const std::string key = "k" + std::to_string(random_.Below(40));
    const auto n = static_cast<std::int64_t>(random_.Below(20));
    const std::string s(random_.Below(4), 's'), t = "word" + std::to_string(n) + " other";
    const auto put = [&](TableBatch& batch, const std::string& one) {
      batch.Put(one, {{"n", n}, {"s", s}, {"t", t}, {"u", one}});
      after[one] = "n=" + std::to_string(n) + " s=" + s + " t=" + t + " u=" + one + " ";
    };
    switch (random_.Below(8)) {
      case 0: {
        const bool is_there = after.erase(key) != 0;
        states_.push_back(after);
        const Status status = table_->Remove(key);
        return is_there ? status : absl::IsNotFound(status) ? absl::OkStatus() : absl::UnknownError("Remove found no row");
      }
      case 1: {
        for (auto& [one, text] : after) {
          if (!text.starts_with("n=" + std::to_string(n) + " ")) continue;
          text = "n=-1" + text.substr(text.find(' '));
        }
        states_.push_back(after);
        return table_->Select().Where(Column("n") == n).Update({{"n", -1}}).status();
      }
      case 2: {
        const IndexOptions& index = kIndices[random_.Below(std::size(kIndices))];
        const Status created = table_->CreateIndex(index);
        return absl::IsAlreadyExists(created) ? absl::OkStatus() : created;
      }
      case 3: {
        const std::vector<IndexInfo> indices = table_->Indices();
        return indices.empty() || random_.OneIn(2) ? absl::OkStatus()
                                                   : table_->DropIndex(indices[random_.Below(indices.size())].options.name);
      }
      case 4: {
        if (!random_.OneIn(4)) return absl::OkStatus();
        const Status status = table_->Synchronize(SyncMode::kHard);
        durable_ = states_.size() - 1;
        return status;
      }
      default: {
        TableBatch batch;
        for (std::uint64_t i = random_.OneIn(3) ? 6 : 1; i > 0; --i) put(batch, i == 1 ? key : "k" + std::to_string(random_.Below(40)));
        states_.push_back(after);
        return table_->Write(batch);
      }
    }
  }

  void MaybeCheck(std::uint64_t odds) {
    if (!random_.OneIn(odds) || testing::Test::HasFatalFailure() || is_checking_) return;
    is_checking_ = true;
    const bool cuts_power = random_.OneIn(2);
    const auto image = [&](CrashMemory& memory) { return cuts_power ? memory.Crash(random_) : memory.Live(); };
    const auto found = Recover(image(*file_), image(*log_));
    ++num_crashes_;
    is_checking_ = false;
    ASSERT_THAT(found, IsOk());
    const std::size_t least = cuts_power ? durable_ : acknowledged_;
    ASSERT_NE(std::find(states_.begin() + static_cast<std::ptrdiff_t>(least), states_.end(), *found), states_.end())
        << (cuts_power ? "power cut" : "kill") << ", " << found->size() << " rows";
  }

  Random random_;
  std::shared_ptr<CrashMemory> file_ = std::make_shared<CrashMemory>(Image{}, 1), log_ = std::make_shared<CrashMemory>(Image{}, 1);
  std::unique_ptr<TableDBM> table_;
  std::vector<Rows> states_ = {{}};
  std::size_t acknowledged_ = 0, durable_ = 0;
  std::uint64_t num_crashes_ = 0;
  bool is_checking_ = false;
};

TEST(TableCrashTest, LeavesRowsAndEntriesOfOneMoment) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(600);
  std::uint64_t num_crashes = 0;
  for (std::uint64_t number = 0; num_crashes < wanted; ++number) {
    SCOPED_TRACE(number);
    Machine machine(Random::Mix(TestSeed()) + number);
    ASSERT_NO_FATAL_FAILURE(machine.Live(120));
    num_crashes += machine.num_crashes();
  }
  ReportCrashStates(num_crashes);
}

// ---- processes that are killed ----

// The operations of a writer follow from their numbers. Each tenth is an update by query of all of its
// rows, the others put one.
std::string KeyOf(int writer, std::uint64_t number) { return std::to_string(writer) + "/" + std::to_string(number * 7 % 40); }
Status ApplyTo(TableDBM& table, int writer, std::uint64_t number) {
  const auto n = static_cast<std::int64_t>(number);
  if (number % 10 == 9) return table.Select().Where(Key().BeginsWith(std::to_string(writer) + "/")).Update({{"mark", n}}).status();
  const std::string t = "text number " + std::to_string(number % 100);
  return table.Put(KeyOf(writer, number), {{"n", n}, {"t", t}});
}
void ApplyTo(std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>& rows, int writer, std::uint64_t number) {
  if (number % 10 != 9) {
    rows[KeyOf(writer, number)] = {number, 0};
  } else {
    for (auto& [key, row] : rows) row.second = number;
  }
}

constexpr int kWriters = 2;

void Work(const std::string& path, const TableOptions& options, CrashProgress& progress) {
  const auto table = TableDBM::Open(path, options);
  if (!table.ok()) return progress.Fail(ToStd(table.status().ToString()));
  progress.ready = true;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (std::uint64_t number = 0;; ++number) {
        progress.writers[writer].begun = number + 1;
        if (const Status status = ApplyTo(**table, writer, number); !status.ok()) return progress.Fail(ToStd(status.ToString()));
        progress.writers[writer].acknowledged = number + 1;
      }
    });
  }
  threads.emplace_back([&] {
    for (std::uint64_t number = 0;; ++number) {
      const IndexOptions& index = kIndices[number % 3];
      Status status = (*table)->CreateIndex(index);
      if (status.ok()) status = (*table)->DropIndex((*table)->Indices()[0].options.name);
      if (!status.ok()) return progress.Fail(ToStd(status.ToString()));
    }
  });
  for (std::thread& thread : threads) thread.join();
}

TEST(TableCrashTest, KilledWritersLeaveNoEntryWithoutItsRow) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  const int kills = Kills(12);
  for (int number = 0; number < kills; ++number) {
    SCOPED_TRACE(number);
    const TempDir dir;
    const std::string path = dir.path() + "/t.hktb";
    TableOptions options;
    options.file.lock_timeout = std::chrono::seconds(10);
    const bool is_logged = !random.OneIn(4);
    options.tree = {.page_size = 512,
                    .cache_bytes = 1 << 20,
                    .checkpoint_bytes = 32 << 10,
                    .durability = is_logged ? Durability::kProcess : Durability::kNone};
    CrashChild child([&](CrashProgress& progress) { Work(path, options, progress); });
    child.AwaitReady();
    CrashChild::Pause(random.Below(60'000));
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path, options));
    ASSERT_THAT(table->Verify(), IsOk());
    for (int writer = 0; writer < kWriters; ++writer) {
      std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> found, expected;
      ASSERT_THAT(table->Select().Where(Key().BeginsWith(std::to_string(writer) + "/")).Each([&](std::string_view key, const RowView& row) {
        const Value mark = row["mark"];
        found[std::string(key)] = {static_cast<std::uint64_t>(row["n"].int_value()),
                                   mark.is_null() ? 0 : static_cast<std::uint64_t>(mark.int_value())};
        return true;
      }),
                  IsOk());
      const auto& of_writer = child.progress().writers[writer];
      const std::uint64_t least = is_logged ? of_writer.acknowledged.load() : 0;
      bool is_there = false;
      for (std::uint64_t done = 0; done <= of_writer.begun && !is_there; ++done) {
        is_there = done >= least && found == expected;
        ApplyTo(expected, writer, done);
      }
      ASSERT_TRUE(is_there) << "writer " << writer << " has " << found.size() << " rows, of operations " << least << " to "
                            << of_writer.begun;
    }
  }
  ReportKills(static_cast<std::uint64_t>(kills));
}

}  // namespace
}  // namespace hako
