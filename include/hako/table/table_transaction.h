// Transactions of tables: rows, queries and changes that take effect together.
//
//   hako::Transaction transaction(*people);
//   Status paid = transaction.Retry(100, [&]() -> Status {
//     HAKO_ASSIGN_OR_RETURN(const Row ada, transaction->Get("ada"));
//     return transaction->Update("ada", {{"age", ada["age"].int_value() + 1}});
//   });
//
// `transaction->` is the table as the transaction sees it: a TableDBM with the rows and queries of one. All of it is as
// dbm/transaction.h says. Tables that share a database (TableDBM::Open of a KeySpace) share its transactions:
//
//   hako::Transaction transaction(*db);  // of a TreeDBM, BabyDBM or AnyDBM
//   HAKO_ASSIGN_OR_RETURN(auto people, all_people->In(transaction));
//   HAKO_ASSIGN_OR_RETURN(auto orders, all_orders->In(transaction));
//
// The reads of a query conflict with changes of others: of the rows and, where an index was used, of the part of the index,
// with the record behind it. If the table has an index of words or q-grams, changes also conflict if their rows share a
// word, because both change its posting list, and if they add or remove rows whose numbers are neighbours
// (table/row_numbers.h), as those of most new rows are. Retry then tries again.
// A column or index that others change makes transactions which have changed rows of the table end with Aborted. Columns
// that a row adds are stored at once, and stay if the transaction does not commit. Count without a condition reads all
// rows. conflict() is the key of a record: that of a row is a byte 1 and its primary key, behind the name of its space.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/multi_operations.h"
#include "hako/dbm/transaction.h"
#include "hako/table/table_dbm.h"

namespace hako {

// A transaction of one table: see the head of this header. The functions are those of the transaction of a database
// (dbm/transaction.h).
template <>
class Transaction<TableDBM> {
 public:
  // May throw std::bad_alloc.
  // REQUIRES: the table is not that of a transaction itself (checked in TableDBM::store)
  explicit Transaction(TableDBM& table) : inside_(table.store()) {
    table_ = *table.InTransaction(
        std::make_unique<internal::AnyTransaction<AnyDBM>>(inside_),
        true, [&](auto part) -> const auto& { return inside_.Join(std::move(part)); });
  }
  Transaction(const Transaction&) = delete;

  // The table as the transaction sees it.
  TableDBM* operator->() { return table_.get(); }
  TableDBM& operator*() { return *table_; }

  Status Commit(const WriteOptions& options = {}) { return inside_.Commit(options); }
  void Rollback() { inside_.Rollback(); }
  const std::string& conflict() const { return inside_.conflict(); }
  template <class Body>
  Status Retry(unsigned num_tries, Body&& body, const WriteOptions& options = {}) {
    if constexpr (std::is_invocable_v<Body&, Transaction&>)
      return inside_.Retry(
          num_tries, [&]() -> Status { return body(*this); }, options);
    else
      return inside_.Retry(num_tries, body, options);
  }
  Savepoint SetSavepoint() const { return inside_.SetSavepoint(); }
  Status RollbackTo(const Savepoint& savepoint) { return inside_.RollbackTo(savepoint); }

 private:
  Transaction<AnyDBM> inside_;
  std::unique_ptr<TableDBM> table_;
};

}  // namespace hako
