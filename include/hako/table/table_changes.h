// ChangesInTransaction: the effects, beside its records, of the changes of a table in a transaction
// (table/table_transaction.h).
//
// The records that they change are updates of the transaction. The number of rows, the numbers of rows for text indices,
// and the notes for the builder of an index are kept here until the commit. The commit holds the WriterGate of the
// table, as a change outside of a transaction does.
//
// Thread-compatible, as the transaction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hako/base/status.h"
#include "hako/dbm/transaction_records.h"
#include "hako/table/catalogue.h"
#include "hako/table/posting_block.h"
#include "hako/table/table_core.h"

namespace hako::table {

class ChangesInTransaction final : public internal::TransactionPart {
 public:
  // One step of a ChangeSet.
  struct Step {
    std::uint64_t moment = 0;  // of the transaction, after the step
    std::int64_t num_rows_added = 0;
    std::vector<RowNumber> taken, retired;  // as of RowNumbers
    std::vector<RowNumber> noted;           // for Index::changed
  };

  explicit ChangesInTransaction(TableCore& whole) : whole_(whole) {}
  ~ChangesInTransaction() override { Forget(); }
  ChangesInTransaction(const ChangesInTransaction&) = delete;

  void set_records(const internal::TransactionRecords* records) { records_ = records; }

  // Call before a step changes records. FailedPrecondition if the table is closed; Aborted if its columns or indices have
  // changed since the first step. REQUIRES: the gate is held (checked in BeginStep)
  Status BeginStep();
  // Adds a step that has succeeded. REQUIRES: BeginStep has made room for it
  void AddStep(Step step) noexcept;

  Status BeginCommit(const internal::TransactionRecords& records) override;
  void EndCommit(bool has_written) noexcept override;
  void Forget() noexcept override;

 private:
  // The columns, indices and row numbers for which the changes have been made.
  struct Schema {
    const IndexList* indices;
    std::uint64_t columns;     // Catalogue::schema_number
    std::uint64_t generation;  // of the numbers
    bool operator==(const Schema&) const = default;
  };
  Schema PresentSchema() const;
  Status CheckSchema() const;

  TableCore& whole_;
  const internal::TransactionRecords* records_ = nullptr;
  std::optional<Schema> schema_;
  std::vector<Step> steps_;
  std::optional<WriterGate::Writer> writer_;  // during a commit
};

}  // namespace hako::table
