// Transactions of tables case by case: schema changes, row numbers, savepoints, threads, kills and failing allocations.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/no_memory.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/key_space.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/posting_block.h"
#include "hako/table/table_dbm.h"
#include "hako/table/table_transaction.h"
#include "support/allocation_counter.h"
#include "support/crash_child.h"
#include "support/full_size.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr unsigned kTries = 1'000'000;

class TableTransactionCasesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(OpenAll()); }
  void OpenAll() {
    ASSERT_OK_AND_ASSIGN(db_, TreeDBM<>::Open(Path(), {.page_size = 1024}));
    ASSERT_OK_AND_ASSIGN(people_, TableDBM::Open(KeySpace(*db_, "people")));
    ASSERT_OK_AND_ASSIGN(orders_, TableDBM::Open(KeySpace(*db_, "orders")));
  }
  void CloseAll() {
    ASSERT_THAT(people_->Close(), IsOk());
    ASSERT_THAT(orders_->Close(), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
  }
  void TearDown() override {
    if (db_ == nullptr) return;
    EXPECT_THAT(people_->Verify(), IsOk());
    EXPECT_THAT(orders_->Verify(), IsOk());
    ASSERT_NO_FATAL_FAILURE(CloseAll());
  }
  std::string Path() const { return dir_.File("shop.hkt"); }

  TempDir dir_;
  std::unique_ptr<TreeDBM<>> db_;
  std::unique_ptr<TableDBM> people_, orders_;
};

TEST_F(TableTransactionCasesTest, RowsOfTwoTablesAndARecordChangeTogether) {
  ASSERT_THAT(people_->Put("ada", {{"orders", 0}}), IsOk());
  KeySpace log(*db_, "log");
  Transaction transaction(*db_);
  {
    ASSERT_OK_AND_ASSIGN(const auto people, people_->In(transaction));
    ASSERT_OK_AND_ASSIGN(const auto orders, orders_->In(transaction));
    KeySpace own_log(transaction, "log");
    ASSERT_THAT(people->Update("ada", {{"orders", 1}}), IsOk());
    ASSERT_THAT(orders->Put("1", {{"who", "ada"}}), IsOk());
    ASSERT_THAT(own_log.Set("1", "ordered"), IsOk());
    EXPECT_THAT(orders->Select().Where(Column("who") == "ada").Keys(), IsOkAndHolds(ElementsAre("1")));
    EXPECT_THAT(orders_->Count(), IsOkAndHolds(0u));  // nobody else sees it
    EXPECT_THAT(log.Get("1"), StatusIs(StatusCode::kNotFound));
  }  // the views may end before the commit
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(orders_->Count(), IsOkAndHolds(1u));
  EXPECT_EQ(people_->Get("ada")->view()["orders"].int_value(), 1);
  EXPECT_THAT(log.Get("1"), IsOkAndHolds("ordered"));
  CloseAll();
  OpenAll();
  EXPECT_THAT(orders_->Count(), IsOkAndHolds(1u));
  EXPECT_EQ(people_->Get("ada")->view()["orders"].int_value(), 1);
}

// The natural program for one table.
TEST_F(TableTransactionCasesTest, OfATableWithAFileOfItsOwn) {
  ASSERT_OK_AND_ASSIGN(auto table, TableDBM::Open(dir_.File("people.hktb")));
  ASSERT_THAT(table->Put("ada", {{"age", 36}}), IsOk());
  Transaction transaction(*table);
  ASSERT_THAT(transaction.Retry(100,
                                [&]() -> Status {
                                  HAKO_ASSIGN_OR_RETURN(const Row ada, transaction->Get("ada"));
                                  return transaction->Update("ada", {{"age", ada["age"].int_value() + 1}});
                                }),
              IsOk());
  EXPECT_EQ(table->Get("ada")->view()["age"].int_value(), 37);
  // A query conflicts with a row that others add to its answer.
  EXPECT_THAT(transaction->Select().Where(Column("age") >= 40).Count(), IsOkAndHolds(0u));
  ASSERT_THAT(transaction->Put("bob", {{"age", 20}}), IsOk());
  ASSERT_THAT(table->Put("cyd", {{"age", 50}}), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(transaction.conflict(), testing::StartsWith("\1"));  // of rows
  EXPECT_THAT(table->Contains("bob"), IsOkAndHolds(false));
  // Savepoints take back changes of rows.
  ASSERT_THAT(transaction->Put("bob", {{"age", 20}}), IsOk());
  const Savepoint savepoint = transaction.SetSavepoint();
  ASSERT_THAT(transaction->Put("dan", {{"age", 30}}), IsOk());
  EXPECT_THAT(transaction->Count(), IsOkAndHolds(4u));
  ASSERT_THAT(transaction.RollbackTo(savepoint), IsOk());
  EXPECT_THAT(transaction->Count(), IsOkAndHolds(3u));
  ASSERT_THAT(transaction.Commit({.durability = Durability::kPower}), IsOk());
  EXPECT_THAT(table->Count(), IsOkAndHolds(3u));
  EXPECT_THAT(table->Verify(), IsOk());
  ASSERT_THAT(table->Close(), IsOk());
}

TEST_F(TableTransactionCasesTest, IsRefusedWhereItHasNoMeaning) {
  ASSERT_OK_AND_ASSIGN(auto other, BabyDBM<>::Open());
  Transaction of_other(*other);
  EXPECT_THAT(people_->In(of_other), StatusIs(StatusCode::kInvalidArgument, HasSubstr("another database")));
  EXPECT_THAT(TableDBM::Open(KeySpace(*db_, "people")), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("open already")));
  EXPECT_THAT(TableDBM::Open(KeySpace(*db_, "")), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(auto hash, AnyDBM::Open("?dbm=tiny"));
  EXPECT_THAT(TableDBM::Open(KeySpace(*hash, "people")), StatusIs(StatusCode::kUnimplemented));
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(auto people, people_->In(transaction));
  for (const Status& status :
       {people->SetColumn("a", {}), people->CreateIndex({.name = "a", .columns = {{"a"}}}), people->DropIndex("a"), people->Clear(),
        people->Verify(), people->Rebuild(), people->CopyTo(dir_.File("copy")), people->Synchronize(SyncMode::kSoft),
        people->Snapshot().status(), people->In(transaction).status(), people->Scrub().status()}) {
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not part of a transaction")));
  }
  EXPECT_THAT(people->Close(), IsOk());
  EXPECT_THAT(people_->CopyTo(dir_.File("copy")), StatusIs(StatusCode::kUnimplemented));
}

TEST_F(TableTransactionCasesTest, ChangesOfTheSchemaEndIt) {
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(auto people, people_->In(transaction));
  ASSERT_THAT(people_->Put("ada", {{"age", 36}, {"text", "one two"}}), IsOk());
  const auto schema_changes = std::vector<std::function<Status()>>{
      [&] { return people_->CreateIndex({.name = "age", .columns = {{"age"}}}); },
      [&] {
        return people_->CreateIndex({.name = "words", .columns = {{"text", IndexKind::kToken}}});
      },
      [&] { return people_->DropIndex("age"); },
      [&] { return people_->SetColumn("age", {.type = ColumnType::kInt64, .not_null = true}); },
      [&] { return people_->Clear(); },
  };
  for (std::size_t i = 0; i < schema_changes.size(); ++i) {
    const std::string key = "row" + std::to_string(i);
    ASSERT_THAT(people->Put(key, {{"age", 20}, {"text", "two three"}}), IsOk());
    ASSERT_THAT(schema_changes[i](), IsOk());
    EXPECT_THAT(people->Put("another", {{"age", 21}}), StatusIs(StatusCode::kAborted)) << i;
    EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted)) << i;
    EXPECT_THAT(people_->Contains(key), IsOkAndHolds(false)) << i;
    EXPECT_THAT(people_->Verify(), IsOk());
    ASSERT_THAT(people->Put(key, {{"age", 20}, {"text", "two three"}}), IsOk());
    ASSERT_THAT(transaction.Commit(), IsOk()) << i;
    EXPECT_THAT(people_->Contains(key), IsOkAndHolds(true)) << i;
    EXPECT_THAT(people_->Verify(), IsOk());
  }
}

// As outside of a transaction, a batch finds its own earlier entries of a unique index.
TEST_F(TableTransactionCasesTest, UniqueValuesWithinABatch) {
  ASSERT_THAT(people_->SetColumn("login", {.unique = true}), IsOk());
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(auto people, people_->In(transaction));
  TableBatch same;
  same.Put("ada", {{"login", "a"}});
  same.Put("bob", {{"login", "a"}});
  EXPECT_THAT(people->Write(same), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(people->Count(), IsOkAndHolds(0u));
  TableBatch two;
  two.Put("ada", {{"login", "a"}});
  two.Put("bob", {{"login", "b"}});
  ASSERT_THAT(people->Write(two), IsOk());
  EXPECT_THAT(people->Select().Update({{"login", "c"}}), StatusIs(StatusCode::kAlreadyExists));
  TableBatch moves;
  moves.Update("ada", {{"login", "b"}});
  moves.Update("bob", {{"login", "c"}});
  moves.Put("cyd", {{"login", "a"}});
  ASSERT_THAT(people->Write(moves), IsOk());
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(people_->Select().Where(Column("login") == "b").Keys(), IsOkAndHolds(ElementsAre("ada")));
}

// A change that was refused has changed no rows, so another schema does not end the transaction.
TEST_F(TableTransactionCasesTest, ARefusedChangeDoesNotKeepTheSchema) {
  ASSERT_THAT(people_->SetColumn("login", {.unique = true}), IsOk());
  ASSERT_THAT(people_->Put("ada", {{"login", "a"}}), IsOk());
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(auto people, people_->In(transaction));
  int num_tries = 0;
  ASSERT_THAT(transaction.Retry(2,
                                [&]() -> Status {
                                  EXPECT_THAT(people->Put("bob", {{"login", "a"}}), StatusIs(StatusCode::kAlreadyExists));
                                  if (++num_tries == 1) {
                                    EXPECT_THAT(people_->CreateIndex({.name = "age", .columns = {{"age"}}}), IsOk());
                                  }
                                  return people->Put("bob", {{"age", 20}});
                                }),
              IsOk());
  EXPECT_EQ(num_tries, 1);
  EXPECT_THAT(people_->Select().Where(Column("age") == 20).Keys(), IsOkAndHolds(ElementsAre("bob")));
}

// A table that is closed has no more changes, although its database is open: it could not count their rows.
TEST_F(TableTransactionCasesTest, AClosedTableIsNotChanged) {
  ASSERT_THAT(people_->Put("ada", {{"age", 36}}), IsOk());
  Transaction transaction(*db_);
  {
    ASSERT_OK_AND_ASSIGN(const auto people, people_->In(transaction));
    ASSERT_THAT(people->Put("bob", {{"age", 20}}), IsOk());
    ASSERT_THAT(people_->Close(), IsOk());
    EXPECT_THAT(people->Put("cyd", {{"age", 20}}), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed")));
    EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed")));
  }
  int number = 0;
  for (const Status& status :
       {people_->Put("bob", {{"age", 20}}), people_->Put("bob", {{"new", 20}}), people_->Update("ada", {{"age", 20}}),
        people_->Remove("ada"), people_->Get("ada").status(), people_->Contains("ada").status(), people_->Count().status(),
        people_->Select().Keys().status(), people_->Select().Remove().status(), people_->Clear(), people_->SetColumn("age", {}),
        people_->CreateIndex({.columns = {{"age"}}}), people_->Snapshot().status()}) {
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed"))) << number;
    ++number;
  }
  people_.reset();
  ASSERT_OK_AND_ASSIGN(people_, TableDBM::Open(KeySpace(*db_, "people")));
  EXPECT_THAT(people_->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(people_->Select().Keys(), IsOkAndHolds(ElementsAre("ada")));
}

// The first rows of a long list, which a query outside of a transaction finds by the zones of their numbers.
TEST_F(TableTransactionCasesTest, FirstRowsByKey) {
  ASSERT_THAT(people_->CreateIndex({.name = "words", .columns = {{"text", IndexKind::kToken}}}), IsOk());
  for (int i = 1'000; i < 3'000; ++i) ASSERT_THAT(people_->Put("k" + std::to_string(i), {{"text", "two three"}}), IsOk());
  const auto first = [](TableDBM& table) { return table.Select().Where(Column("text").HasAll("two")).OrderBy("").Limit(2); };
  EXPECT_THAT(first(*people_).Explain(), IsOkAndHolds(HasSubstr("first rows by key")));
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(const auto people, people_->In(transaction));
  EXPECT_THAT(first(*people).Keys(), IsOkAndHolds(ElementsAre("k1000", "k1001")));
  ASSERT_THAT(people->Put("other", {{"n", 1}}), IsOk());
  ASSERT_THAT(people_->Put("a", {{"text", "two"}}), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(first(*people).Keys(), IsOkAndHolds(ElementsAre("a", "k1000")));
  ASSERT_THAT(people->Put("0", {{"text", "one two"}}), IsOk());
  EXPECT_THAT(first(*people).Keys(), IsOkAndHolds(ElementsAre("0", "a")));
  ASSERT_THAT(transaction.Commit(), IsOk());
}

// The statement removes all rows of the table, which outside of a transaction is Clear.
TEST_F(TableTransactionCasesTest, DeleteWithoutACondition) {
  ASSERT_THAT(people_->Put("ada", {{"age", 36}}), IsOk());
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(const auto people, people_->In(transaction));
  ASSERT_THAT(people->Put("bob", {{"age", 20}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const Statement statement, ParseStatement("delete"));
  EXPECT_THAT(people->Run(statement, [](const ResultRow&) { return true; }), IsOkAndHolds(2u));
  EXPECT_THAT(people->Count(), IsOkAndHolds(0u));
  EXPECT_THAT(people_->Count(), IsOkAndHolds(1u));
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(people_->Count(), IsOkAndHolds(0u));
}

// A transaction of one table, which is in a key space.
TEST_F(TableTransactionCasesTest, OfATableInAKeySpace) {
  ASSERT_THAT(people_->CreateIndex({.name = "age", .columns = {{"age"}}}), IsOk());
  Transaction transaction(*people_);
  EXPECT_THAT(transaction->Count(), IsOkAndHolds(0u));
  EXPECT_THAT(transaction->Select().Where(Column("age") >= 20).Count(), IsOkAndHolds(0u));
  ASSERT_THAT(transaction->Put("ada", {{"age", 36}}), IsOk());
  ASSERT_THAT(people_->Put("bob", {{"age", 20}}), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(transaction->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(transaction->Select().Where(Column("age") >= 20).Keys(), IsOkAndHolds(ElementsAre("bob")));
  ASSERT_THAT(transaction->Put("ada", {{"age", 36}}), IsOk());
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(people_->Count(), IsOkAndHolds(2u));
}

// A type or a rule of a column that rows already have.
TEST_F(TableTransactionCasesTest, ANewTypeOrRuleEndsIt) {
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(const auto people, people_->In(transaction));
  ASSERT_THAT(people_->Put("ada", {{"age", 36}}), IsOk());
  ASSERT_THAT(people->Put("bob", {{"age", "old"}}), IsOk());
  ASSERT_THAT(people_->SetColumn("age", {.type = ColumnType::kInt64, .default_value = OwnedValue(Value(0))}), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
  ASSERT_THAT(people->Update("ada", {{"age", Value()}}), IsOk());
  ASSERT_THAT(people_->SetColumn("age", {.type = ColumnType::kInt64, .not_null = true, .default_value = OwnedValue(Value(0))}), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_EQ(people_->Get("ada")->Get("age").int_value(), 36);
}

TEST_F(TableTransactionCasesTest, ASnapshotTakesNoPart) {
  ASSERT_THAT(people_->Put("ada", {{"age", 36}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto snapshot, people_->Snapshot());
  Transaction transaction(*db_);
  EXPECT_THAT(snapshot->In(transaction), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(auto any, AnyDBM::Open("?dbm=baby"));
  ASSERT_OK_AND_ASSIGN(auto table, TableDBM::Open(KeySpace(*any, "people")));
  ASSERT_THAT(table->Put("ada", {{"age", 36}}), IsOk());
  ASSERT_OK_AND_ASSIGN(auto moment, any->Snapshot());
  ASSERT_OK_AND_ASSIGN(auto old, TableDBM::Open(KeySpace(*moment, "people")));
  EXPECT_THAT(old->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(old->Put("bob", {{"age", 20}}), StatusIs(StatusCode::kFailedPrecondition));
}

// Commits that enter the gates of tables in any order and several times, beside those that close them.
TEST_F(TableTransactionCasesTest, CommitsDoNotWaitForEachOther) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      Transaction transaction(*db_);
      const auto first = *(number == 0 ? people_ : orders_)->In(transaction), second = *(number == 0 ? orders_ : people_)->In(transaction);
      const auto again = *(number == 0 ? people_ : orders_)->In(transaction);
      for (int i = 0; i < 300; ++i) {
        ASSERT_THAT(transaction.Retry(kTries,
                                      [&]() -> Status {
                                        const std::string key = std::to_string(number) + "-" + std::to_string(i);
                                        HAKO_RETURN_IF_ERROR(first->Put(key, {{"n", i}}));
                                        HAKO_RETURN_IF_ERROR(second->Put(key, {{"n", i}}));
                                        return again->Update(key, {{"n", i + 1}});
                                      }),
                    IsOk());
      }
    });
  }
  for (TableDBM* const table : {people_.get(), orders_.get()}) {
    threads.emplace_back([table] {
      for (int i = 0; i < 300; ++i) ASSERT_THAT(table->Snapshot(), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(people_->Count(), IsOkAndHolds(600u));
  EXPECT_THAT(orders_->Count(), IsOkAndHolds(600u));
}

TEST_F(TableTransactionCasesTest, NewColumnsStay) {
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(auto people, people_->In(transaction));
  ASSERT_THAT(people->Put("ada", {{"age", 36}}), IsOk());
  transaction.Rollback();
  EXPECT_THAT(people_->FindColumn("age"), IsOk());
  EXPECT_THAT(people_->Count(), IsOkAndHolds(0u));
}

// Numbers of rows that are not committed are given again, so their key blocks stay few.
TEST_F(TableTransactionCasesTest, NumbersAreGivenBack) {
  ASSERT_THAT(people_->CreateIndex({.name = "words", .columns = {{"text", IndexKind::kToken}}}), IsOk());
  Transaction transaction(*db_);
  ASSERT_OK_AND_ASSIGN(auto people, people_->In(transaction));
  const auto put_some = [&] {
    for (int i = 0; i < 100; ++i) ASSERT_THAT(people->Put("row" + std::to_string(i), {{"text", "one two"}}), IsOk());
  };
  for (int i = 0; i < 50; ++i) {
    const Savepoint savepoint = transaction.SetSavepoint();
    ASSERT_NO_FATAL_FAILURE(put_some());
    if (i % 2 == 0) {
      ASSERT_THAT(transaction.RollbackTo(savepoint), IsOk());
      ASSERT_THAT(people->Put("other", {{"n", i}}), IsOk());  // so that there is something to commit
      ASSERT_THAT(transaction.Commit(), IsOk());
    } else {
      transaction.Rollback();
    }
  }
  ASSERT_NO_FATAL_FAILURE(put_some());
  ASSERT_THAT(transaction.Commit(), IsOk());
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 100; ++k) ASSERT_THAT(people->Remove("row" + std::to_string(k)), IsOk());
    ASSERT_THAT(transaction.Commit(), IsOk());
    ASSERT_NO_FATAL_FAILURE(put_some());
    ASSERT_THAT(transaction.Commit(), IsOk());
  }
  KeySpace space(*db_, "people");
  std::uint64_t num_blocks = 0, last = 0;
  for (const auto& [key, value] : space.PrefixRange("\3")) {
    ++num_blocks;
    last = static_cast<unsigned char>(key.back());
  }
  EXPECT_GT(num_blocks, 0u);
  EXPECT_LE(last * table::kKeysOfBlock, 1'000u);
  EXPECT_THAT(people_->Select().Where(Column("text").HasAll("two")).Count(), IsOkAndHolds(100u));
}

// Amounts move between two tables, and each move is an order with a text. Transactions that only read, and queries by
// indices, find the sum; indices come and go.
TEST_F(TableTransactionCasesTest, ThreadsAndSchemaChanges) {
  static constexpr int kRows = 20;
  for (int i = 0; i < kRows; ++i) {
    ASSERT_THAT(people_->Put(std::to_string(i), {{"n", 100}}), IsOk());
    ASSERT_THAT(orders_->Put(std::to_string(i), {{"n", 0}, {"text", "bare"}}), IsOk());
  }
  ASSERT_THAT(orders_->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
  std::atomic<bool> stops{false};
  std::atomic<std::uint64_t> num_moves{0}, num_sums{0};
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      Random random(TestSeed() + number);
      Transaction transaction(*db_);
      const auto people = *people_->In(transaction), orders = *orders_->In(transaction);
      while (!stops) {
        const std::string from = std::to_string(random.Below(kRows)), to = std::to_string(random.Below(kRows));
        ASSERT_THAT(transaction.Retry(kTries,
                                      [&]() -> Status {
                                        HAKO_ASSIGN_OR_RETURN(const Row giver, people->Get(from));
                                        HAKO_ASSIGN_OR_RETURN(const Row taker, orders->Get(to));
                                        const std::int64_t has = giver["n"].int_value();
                                        if (random.OneIn(5)) {  // back
                                          if (taker["n"].int_value() == 0) return absl::OkStatus();
                                          HAKO_RETURN_IF_ERROR(people->Update(from, {{"n", has + 1}}));
                                          HAKO_RETURN_IF_ERROR(orders->Remove(to));
                                          return orders->Put(to, {{"n", taker["n"].int_value() - 1}, {"text", "given back"}});
                                        }
                                        HAKO_RETURN_IF_ERROR(people->Update(from, {{"n", has - 1}}));
                                        return orders->Update(to, {{"n", taker["n"].int_value() + 1}, {"text", "taken from " + from}});
                                      }),
                    IsOk());
        ++num_moves;
      }
    });
  }
  threads.emplace_back([&] {
    Transaction transaction(*db_);
    const auto people = *people_->In(transaction), orders = *orders_->In(transaction);
    while (!stops) {
      std::int64_t sum = 0;
      std::uint64_t found = 0;
      ASSERT_THAT(transaction.Retry(kTries,
                                    [&]() -> Status {
                                      sum = 0;
                                      for (const auto& table : {people.get(), orders.get()}) {
                                        HAKO_ASSIGN_OR_RETURN(const Aggregates all, table->Select().Aggregate("n"));
                                        sum += all.Sum().int_value();
                                      }
                                      HAKO_ASSIGN_OR_RETURN(found, orders->Select().Where(Column("n") >= -1'000'000).Count());
                                      return absl::OkStatus();
                                    }),
                  IsOk());
      ASSERT_EQ(sum, kRows * 100);
      ASSERT_EQ(found, static_cast<std::uint64_t>(kRows));
      ++num_sums;
    }
  });
  const int rounds = FullSize() ? 300 : 12;
  for (int i = 0; i < rounds && !HasFatalFailure(); ++i) {
    ASSERT_THAT(orders_->CreateIndex({.name = "words", .columns = {{"text", IndexKind::kToken}}}), IsOk());
    ASSERT_THAT(people_->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
    for (const std::uint64_t moves = num_moves; num_moves < moves + 5 && !HasFailure();) std::this_thread::yield();
    ASSERT_THAT(orders_->Verify(), IsOk());
    ASSERT_THAT(orders_->DropIndex("words"), IsOk());
    ASSERT_THAT(people_->DropIndex("n"), IsOk());
    ASSERT_THAT(people_->SetColumn("n", {.type = i % 2 == 0 ? ColumnType::kInt64 : ColumnType::kAny}), IsOk());
  }
  for (const std::uint64_t sums = num_sums; num_sums < sums + 3 && !HasFailure();) std::this_thread::yield();
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_sums, 2u);
}

// Whatever allocation fails, the transaction and the tables are as if it had not been called, and all works again.
TEST_F(TableTransactionCasesTest, FailingAllocations) {
  ASSERT_THAT(people_->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
  ASSERT_THAT(people_->CreateIndex({.name = "words", .columns = {{"text", IndexKind::kToken}}}), IsOk());
  ASSERT_THAT(people_->Put("ada", {{"n", 1}, {"text", "one two"}}), IsOk());
  Transaction transaction(*db_);
  const auto change = [&]() -> Status {
    HAKO_ASSIGN_OR_RETURN(const auto people, people_->In(transaction));
    HAKO_ASSIGN_OR_RETURN(const auto orders, orders_->In(transaction));
    HAKO_RETURN_IF_ERROR(people->Put("bob", {{"n", 2}, {"text", "two three"}}));
    HAKO_RETURN_IF_ERROR(people->Remove("ada"));
    HAKO_RETURN_IF_ERROR(orders->Put("1", {{"who", "bob"}}));
    return transaction.Commit();
  };
  std::uint64_t num_failed = 0;
  for (std::uint64_t n = 1;; ++n) {
    Status status;
    bool has_failed = false;
    {
      FailingAllocation failing(n, FailingAllocation::Which::kOnce, FailingAllocation::Whose::kThisThread);
      status = CatchNoMemory(change);
      has_failed = failing.HasFailed();
    }
    transaction.Rollback();
    num_failed += !status.ok();
    if (status.ok()) {
      EXPECT_THAT(people_->Contains("bob"), IsOkAndHolds(true));
      EXPECT_THAT(people_->Contains("ada"), IsOkAndHolds(false));
      ASSERT_THAT(people_->Remove("bob"), IsOk());
      ASSERT_THAT(people_->Put("ada", {{"n", 1}, {"text", "one two"}}), IsOk());
      ASSERT_THAT(orders_->Remove("1"), IsOk());
    } else {
      ASSERT_THAT(status, StatusIs(StatusCode::kResourceExhausted)) << "allocation " << n;
      ASSERT_THAT(people_->Contains("bob"), IsOkAndHolds(false)) << "allocation " << n;
      ASSERT_THAT(orders_->Count(), IsOkAndHolds(0u)) << "allocation " << n;
    }
    ASSERT_THAT(people_->Count(), IsOkAndHolds(1u)) << "allocation " << n;
    ASSERT_THAT(people_->Verify(), IsOk()) << "allocation " << n;
    if (!has_failed) break;
  }
  EXPECT_GT(num_failed, 30u);
}

// A process is killed while transactions move amounts between tables: each is there as a whole or not at all.
TEST_F(TableTransactionCasesTest, KilledWhileItCommits) {
  static constexpr int kRows = 10;
  for (int i = 0; i < kRows; ++i) {
    ASSERT_THAT(people_->Put(std::to_string(i), {{"n", 100}}), IsOk());
    ASSERT_THAT(orders_->Put(std::to_string(i), {{"n", 0}, {"text", "bare"}}), IsOk());
  }
  ASSERT_THAT(orders_->CreateIndex({.name = "words", .columns = {{"text", IndexKind::kToken}}}), IsOk());
  CloseAll();
  people_.reset();
  orders_.reset();
  db_.reset();
  Random random(TestSeed());
  std::uint64_t num_moves = 0;
  const int rounds = FullSize() ? 200 : 8;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    CrashChild child([&](CrashProgress& progress) {
      OpenAll();
      if (HasFailure()) return progress.Fail("open");
      progress.ready = true;
      Transaction transaction(*db_);
      const auto people = *people_->In(transaction), orders = *orders_->In(transaction);
      Random own(TestSeed() + static_cast<std::uint64_t>(round));
      for (;;) {
        const std::string from = std::to_string(own.Below(kRows)), to = std::to_string(own.Below(kRows));
        const Status moved = transaction.Retry(kTries, [&]() -> Status {
          HAKO_ASSIGN_OR_RETURN(const Row giver, people->Get(from));
          HAKO_ASSIGN_OR_RETURN(const Row taker, orders->Get(to));
          HAKO_RETURN_IF_ERROR(people->Update(from, {{"n", giver["n"].int_value() - 1}}));
          return orders->Update(to, {{"n", taker["n"].int_value() + 1}, {"text", "taken from " + from}});
        });
        if (!moved.ok()) return progress.Fail(std::string_view(moved.message().data(), moved.message().size()));
        ++progress.writers[0].acknowledged;
      }
    });
    child.AwaitReady();
    CrashChild::Pause(random.Below(20'000));
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");
    num_moves += child.progress().writers[0].acknowledged;
    ASSERT_NO_FATAL_FAILURE(OpenAll());
    const auto sum = [](TableDBM& table) { return table.Select().Aggregate("n")->Sum().int_value(); };
    EXPECT_EQ(sum(*people_) + sum(*orders_), kRows * 100);
    EXPECT_GE(sum(*orders_), static_cast<std::int64_t>(num_moves));
    EXPECT_LE(sum(*orders_), static_cast<std::int64_t>(num_moves) + round + 1);  // one each time was not acknowledged
    EXPECT_THAT(people_->Verify(), IsOk());
    EXPECT_THAT(orders_->Verify(), IsOk());
    CloseAll();
    people_.reset();
    orders_.reset();
    db_.reset();
  }
  EXPECT_GT(num_moves, 0u);
}

// A snapshot of one table in a space has its rows, and each table its own.
TEST_F(TableTransactionCasesTest, TablesOfOneDatabaseAreTables) {
  ASSERT_THAT(people_->Put("ada", {{"age", 36}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto snapshot, people_->Snapshot());
  ASSERT_THAT(people_->Put("bob", {{"age", 20}}), IsOk());
  ASSERT_THAT(orders_->Put("1", {{"who", "ada"}}), IsOk());
  EXPECT_THAT(snapshot->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(snapshot->Select().Keys(), IsOkAndHolds(ElementsAre("ada")));
  EXPECT_THAT(people_->Select().Keys(), IsOkAndHolds(ElementsAre("ada", "bob")));
  EXPECT_THAT(orders_->Select().Keys(), IsOkAndHolds(ElementsAre("1")));
  ASSERT_THAT(people_->Clear(), IsOk());
  EXPECT_THAT(people_->Count(), IsOkAndHolds(0u));
  EXPECT_THAT(orders_->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(people_->Rebuild(), IsOk());
  EXPECT_THAT(people_->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_OK_AND_ASSIGN(auto any, AnyDBM::Open("?dbm=baby"));
  ASSERT_OK_AND_ASSIGN(auto table, TableDBM::Open(KeySpace(*any, "people")));
  ASSERT_THAT(table->Put("ada", {{"age", 36}}), IsOk());
  Transaction transaction(*any);
  ASSERT_OK_AND_ASSIGN(auto people, table->In(transaction));
  ASSERT_THAT(people->Update("ada", {{"age", 37}}), IsOk());
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_EQ(table->Get("ada")->view()["age"].int_value(), 37);
  ASSERT_THAT(table->Close(), IsOk());
  EXPECT_THAT(any->Set("more", "records"), IsOk());  // the database is still open
}

}  // namespace
}  // namespace hako
