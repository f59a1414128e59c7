// TableDBM: rows of named columns under a primary key, in one file or in memory.
//
//   HAKO_ASSIGN_OR_RETURN(auto table, TableDBM::Open("people.hktb"));
//   HAKO_RETURN_IF_ERROR(table->CreateIndex({.columns = {{"age"}}}));
//   HAKO_RETURN_IF_ERROR(table->Put("ada", {{"name", "Ada"}, {"age", 36}}));
//   auto found = table->Select().Where(Column("age") >= 20).OrderBy("name").Limit(10);
//   Status status = found.Each([](std::string_view key, const RowView& row) { ...; return true; });
//
// A row is a set of cells: no schema is needed, and rows of one table may have different columns. A
// column may be given a type and rules (SetColumn), and indices (CreateIndex). Values are compared and ordered
// by their types: see table/value.h. Conditions on words, and indices of words, ignore case by the rules
// of Unicode (table/words.h); all else, from equality to substrings and keys, compares bytes. Rows, the entries of
// indices, and the catalogue of both are records of one TreeDBM, or of a BabyDBM in memory
// (table/index_key.h). Each change of a row and of its entries is one atomic step: no reader and no
// crash separates them.
//
// Durability: as for a TreeDBM, by TableOptions::tree.durability. Table files have the type
// kTableType (dbm/options.h): TreeDBM and AnyDBM refuse them, and Open refuses a plain tree.
//
// Limits: TableLimits (table/schema.h).
//
// Thread-safe, except Close and the destructor. The table has no lock: writers of different rows
// run concurrently, and readers take no lock. A query is not a snapshot (table/query.h), but Snapshot shows the table
// as it was at one moment.
// Visitors may read the table, but not change it.
//
// Errors: as in base/status.h. An absent row is NotFound, and a row that should not exist is
// AlreadyExists, both with an empty message. A value that a unique index already has is
// AlreadyExists with a message. Errors name the column or the index, and change nothing. While the
// device is full, rows and indices can be removed, and other changes are ResourceExhausted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_model.h"
#include "hako/dbm/any_part.h"
#include "hako/dbm/key_space.h"
#include "hako/dbm/options.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/transaction_records.h"
#include "hako/file/file.h"
#include "hako/storage/salvage_report.h"
#include "hako/storage/scrub_progress.h"
#include "hako/table/query.h"
#include "hako/table/row.h"
#include "hako/table/schema.h"
#include "hako/table/statement_run.h"
#include "hako/table/value.h"

namespace hako {

namespace table {
struct TableCore;
}  // namespace table

// Options of TableDBM::Open.
struct TableOptions {
  TreeOptions tree = {};  // of the tree in the file; `type` and `raw` are ignored
  FileOptions file = {};  // of the file
  // Uses a PositionalParallelFile instead of a mapped file. FileOptions::direct implies it.
  bool positional = false;
  // The first columns of a new table, which are stored in one step. They are ignored for an
  // existing table, but malformed ones are always refused.
  std::vector<std::pair<std::string, ColumnOptions>> columns = {};
  // For a new table: rows may only have the columns of SetColumn and `columns`.
  bool closed_schema = false;
  // Bytes of keys and values that one query may sort or group in memory.
  std::uint64_t sort_bytes = std::uint64_t{256} << 20;
  // Bytes of memory in which the building of an index of words or q-grams gathers these of many rows before it writes
  // their lists, each of them then once. Those of one row are gathered in any case.
  std::uint64_t build_bytes = std::uint64_t{64} << 20;
};

// Changes of rows that Write makes together. It copies their bytes. A later change of a row sees
// the earlier ones.
class TableBatch {
 public:
  // See the functions of TableDBM.
  void Put(StringArg key, std::span<const Cell> cells) { Add(0, key, cells); }
  void Put(StringArg key, std::initializer_list<Cell> cells) { Put(key, std::span(cells.begin(), cells.size())); }
  void PutKeep(StringArg key, std::span<const Cell> cells) { Add(1, key, cells); }
  void PutKeep(StringArg key, std::initializer_list<Cell> cells) { PutKeep(key, std::span(cells.begin(), cells.size())); }
  void Update(StringArg key, std::span<const Cell> cells) { Add(2, key, cells); }
  void Update(StringArg key, std::initializer_list<Cell> cells) { Update(key, std::span(cells.begin(), cells.size())); }
  void Append(StringArg key, std::span<const Cell> cells) { Add(3, key, cells); }
  void Append(StringArg key, std::initializer_list<Cell> cells) { Append(key, std::span(cells.begin(), cells.size())); }
  void Remove(StringArg key) { Add(4, key, {}); }

  // Removes all changes, but keeps the memory.
  void Clear();
  // The number of changes.
  std::size_t size() const { return changes_.size(); }

 private:
  friend class TableDBM;
  struct CellPlace {
    std::size_t begin, name_size, value_size;
    Value value;  // without its bytes
  };
  struct ChangePlace {
    int kind;
    std::size_t begin, key_size, first_cell, num_cells;
  };
  void Add(int kind, std::string_view key, std::span<const Cell> cells);

  std::string bytes_;
  std::vector<CellPlace> cells_;
  std::vector<ChangePlace> changes_;
};

// A table: see the head of this header.
class TableDBM {
 public:
  // Opens the table at `path`, and creates one if the file is new. Returns InvalidArgument if the
  // file is not a table; otherwise as TreeDBM::Open. If it fails, it removes a file that it has
  // created. It completes an index whose creation a crash has interrupted, and removes one whose
  // removal was interrupted. It builds an index of words again if utf8proc has another version of
  // Unicode than the one that made it (table/words.h); a table that is opened for reading only does not
  // use such an index. Returns FailedPrecondition if such an index should be unique and is no longer.
  static StatusOr<std::unique_ptr<TableDBM>> Open(const std::string& path, const TableOptions& options = {});
  // Opens an empty table in memory. Returns InvalidArgument for an option that is out of range or
  // requires a file, such as Durability::kPower or a log archive.
  static StatusOr<std::unique_ptr<TableDBM>> OpenInMemory(const TableOptions& options = {});
  // Opens the table in a TreeDBM or BabyDBM of any file, in bytewise order. A database without records
  // becomes a new table. The options of a TreeDBM must have the type kTableType. If it fails, it closes the
  // database, and removes a file that this has created.
  template <OrderedDBM Tree>
  requires requires(Tree& tree) { tree.PrefixRange(""); }
  static StatusOr<std::unique_ptr<TableDBM>> Open(std::unique_ptr<Tree> tree, const TableOptions& options = {}) HAKO_TRY {
    return Open(std::unique_ptr<internal::AnyDatabase>(std::make_unique<internal::AnyModel<Tree>>(std::move(tree))), options);
  }
  HAKO_OR_NO_MEMORY
  // Opens the table in a key space of a TreeDBM, BabyDBM or AnyDBM in bytewise order, which must outlive it. A space
  // without records becomes a new table. So one database has several tables, which share its file, log and transactions
  // (table/table_transaction.h). Nothing else may change the records of the space. Options of the tree and the file are
  // ignored. Returns FailedPrecondition if the table is open already.
  template <class D>
  requires(OrderedDBM<D> || std::is_same_v<D, AnyDBM>) && requires(D& db) { db.PrefixRange(""); }
  static StatusOr<std::unique_ptr<TableDBM>> Open(const KeySpace<D>& space, const TableOptions& options = {}) HAKO_TRY {
    return OpenInSpace(internal::BorrowDatabase(space.database()), space.name(), options);
  }
  HAKO_OR_NO_MEMORY
  static StatusOr<std::unique_ptr<TableDBM>> Open(std::unique_ptr<internal::AnyDatabase> store, const TableOptions& options);
  // Writes the undamaged rows of a damaged table at `from` into a new one at `to`, with the catalogue and new
  // indices; see dbm/salvage.h. Keys, ranges and numbers in the report are those of rows. Lost rows
  // whose keys appear in other records are listed as places. The notes say which columns and
  // indices are lost.
  static StatusOr<SalvageReport> Salvage(const std::string& from, const std::string& to, const FileOptions& options = {});
  // Closes the table if the application has not.
  ~TableDBM();
  TableDBM(const TableDBM&) = delete;
  TableDBM& operator=(const TableDBM&) = delete;

  // Stores a row, replacing an existing one as a whole. Leaves out null cells.
  Status Put(StringArg key, std::span<const Cell> cells);
  Status Put(StringArg key, std::initializer_list<Cell> cells) { return Put(key, std::span(cells.begin(), cells.size())); }
  // Stores a new row. Returns AlreadyExists if the row exists.
  Status PutKeep(StringArg key, std::span<const Cell> cells);
  Status PutKeep(StringArg key, std::initializer_list<Cell> cells) { return PutKeep(key, std::span(cells.begin(), cells.size())); }
  // Sets some columns of a row; null removes a column. Returns NotFound if the row is absent.
  Status Update(StringArg key, std::span<const Cell> cells);
  Status Update(StringArg key, std::initializer_list<Cell> cells) { return Update(key, std::span(cells.begin(), cells.size())); }
  // Appends to the text of some columns, which become bytes. Stores the row if it is absent.
  Status Append(StringArg key, std::span<const Cell> cells);
  Status Append(StringArg key, std::initializer_list<Cell> cells) { return Append(key, std::span(cells.begin(), cells.size())); }
  // Removes a row. Returns NotFound if it is absent.
  Status Remove(StringArg key);
  // Makes all changes in one atomic step, or none. An error names the row.
  Status Write(const TableBatch& batch);

  // Copies a row into *row, reusing its memory. Returns NotFound if the row is absent.
  Status Get(StringArg key, Row* row);
  Status Get(StringArg key, std::nullptr_t) = delete;  // there is nothing to copy it to
  StatusOr<Row> Get(StringArg key);
  // Shows a row. Takes no lock and allocates nothing, unless the row is long.
  Status Get(StringArg key, FunctionRef<void(const RowView&)> visitor);
  // Whether the row exists.
  StatusOr<bool> Contains(StringArg key);
  // Returns the number of rows, which is exact while none is added or removed.
  StatusOr<std::uint64_t> Count();

  // Returns a read-only view of the table as it is now: its rows, their number, the columns and the indices. It is a
  // TableDBM that is open for reading only, with all the queries of one; changes return FailedPrecondition. It shows all
  // of a batch or nothing of it. Columns and indices are those of the moment: an index that is created later is not in
  // it, and one that is dropped later stays in it, which takes memory for its entries.
  //
  // Taking it stops writers for a moment, and reads the columns and indices. For its memory and for what ends its reads
  // see dbm/snapshot.h; the limit is the option snapshot_bytes of the tree, and GetStats().snapshot_bytes of the snapshot
  // is what it takes. Clear of the table does not end it. The table must outlive it, and it its rows and queries.
  // Returns Unimplemented for a snapshot, Unavailable while SetColumn checks the rows of a column.
  StatusOr<std::unique_ptr<TableDBM>> Snapshot();

  // Returns the table as a transaction of its database sees it: with the changes of the transaction, to which the changes
  // of the result belong; see table/table_transaction.h. The transaction must outlive it, and the
  // table the transaction, or its Commit or Rollback after the last change. Changes of columns and
  // indices, Clear and what concerns the file are FailedPrecondition there. InvalidArgument if the transaction is of
  // another database.
  template <class D>
  StatusOr<std::unique_ptr<TableDBM>> In(Transaction<D>& transaction) HAKO_TRY {
    if (internal::AnyTransaction<D>::OriginOf(transaction.database()) != Origin())
      return absl::InvalidArgumentError("the transaction is of another database than the table");
    return InTransaction(
        std::make_unique<internal::AnyTransaction<D>>(transaction),
        false, [&](auto part) -> const auto& { return transaction.Join(std::move(part)); });
  }
  HAKO_OR_NO_MEMORY

  // Returns a query of all rows (table/query.h). The table must outlive it.
  Query Select() { return Query(core_.get()); }
  // Returns the query of a statement (table/query_text.h): its condition and, if it has no
  // functions, its order and limits. Returns InvalidArgument, which names the position, if the
  // statement reads a column that no row has had.
  StatusOr<Query> Select(const Statement& statement);
  // Runs a statement: shows the rows of a select until `show` returns false, or changes rows.
  // Returns the number of rows. See table/statement_run.h.
  StatusOr<std::uint64_t> Run(const Statement& statement, FunctionRef<bool(const ResultRow& row)> show,
                              const StatementOptions& options = {});

  // Returns the number of a column, with which RowView::Get is faster than with the name. Returns
  // NotFound if no row has ever had the column.
  StatusOr<ColumnId> FindColumn(StringArg name) const;
  // Returns all columns that rows have had, in the order of their numbers.
  std::vector<ColumnInfo> Columns() const;
  // Whether rows may only have the existing columns (TableOptions::closed_schema).
  bool HasClosedSchema() const;
  // Replaces the type and the rules of a column, beside readers and writers. Returns
  // FailedPrecondition, which names a row, if an existing row breaks them, and AlreadyExists if the
  // column should be unique and two rows have the same value. Writers already obey the new rules
  // while the rows are checked. `unique` creates an index, unless there is one.
  Status SetColumn(StringArg name, const ColumnOptions& options);

  // Creates an index in parts, beside readers and writers, and returns once it is ready. Returns
  // AlreadyExists if an index has the name, or if the index should be unique and two rows have the
  // same value. Adds columns of the index or its `where` that the table lacks, or returns
  // InvalidArgument if the schema is closed. Writers that would add a column wait meanwhile. Calls progress
  // now and then with the number of rows that were read so far.
  Status CreateIndex(
      const IndexOptions& options, FunctionRef<void(std::uint64_t num_rows)> progress = [](std::uint64_t) {});
  // Drops an index once the queries that use it have ended. Returns NotFound if there is none.
  // After OK the index is gone, even after a crash; if records of it could not be removed, their
  // space is in use until the next change of an index, or Close. Returns FailedPrecondition if the
  // visitor of a query that uses the index calls this.
  Status DropIndex(StringArg name);
  std::vector<IndexInfo> Indices() const;

  // Removes all rows in one atomic step. Columns and indices stay. Stops writers and loads the
  // whole table into memory meanwhile; if the table is large, remove the file instead.
  Status Clear();
  // See TreeDBM.
  Status Synchronize(SyncMode mode);
  std::uint64_t LastLsn();
  Status WaitDurable(std::uint64_t lsn);
  Status CopyTo(const std::string& path);
  bool ShouldBeRebuilt();
  Status Rebuild();
  // See TreeDBM::Scrub: reads the file from its device, a part at a time. For a table in memory
  // each call completes a pass over 0 bytes.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {});
  // Checks the structure of the tree, each row, and that the entries of all indices are exactly
  // those of the rows, beside readers and writers. Returns DataLoss, which names the damage.
  Status Verify();
  Stats GetStats();
  Inspection Inspect();
  bool IsWritable() const;
  Status GetHealth() const;
  // Synchronizes and closes the file. Returns the first error. A table in a key space leaves its database open. Later calls
  // and commits of transactions that have changed its rows return FailedPrecondition.
  // REQUIRES: no other thread uses the table, and no query of it exists (checked in WriterStates::Close)
  Status Close();

 private:
  friend class Transaction<TableDBM>;
  using JoinRef = FunctionRef<const internal::TransactionRecords&(std::shared_ptr<internal::TransactionPart>)>;

  explicit TableDBM(std::unique_ptr<table::TableCore> core);
  static StatusOr<std::unique_ptr<TableDBM>> OpenInSpace(std::unique_ptr<AnyDBM> database, std::string_view name,
                                                         const TableOptions& options);
  // The table in a transaction whose records are in `records`: those of the table, or those of the database of its space.
  StatusOr<std::unique_ptr<TableDBM>> InTransaction(std::unique_ptr<internal::AnyDatabase> records, bool is_of_table, JoinRef join);
  const void* Origin() const;
  AnyDBM& store();
  // The common part of the openings. Opens the table in the database that open_store() opens for
  // `store`, once the table has its memory. If it fails then, it closes the database unkept.
  // `path`, or "", is for errors.
  static StatusOr<std::unique_ptr<TableDBM>> OpenIn(std::unique_ptr<internal::AnyDatabase> store, const TableOptions& options,
                                                    std::string_view path, FunctionRef<Status()> open_store);
  // As OpenIn, in the tree at `path`.
  template <class Tree>
  static StatusOr<std::unique_ptr<TableDBM>> OpenInTree(const std::string& path, const TableOptions& options) {
    auto owned = std::make_unique<internal::AnyModel<Tree>>();
    auto& store = *owned;
    const auto open_store = [&]() -> Status {
      TreeOptions tree = options.tree;
      tree.type = kTableType;
      HAKO_ASSIGN_OR_RETURN(auto db, Tree::Open(path, tree, options.file));
      store.Take(std::move(db));
      return absl::OkStatus();
    };
    return OpenIn(std::move(owned), options, path, open_store);
  }
  static StatusOr<std::unique_ptr<TableDBM>> OpenPositional(const std::string& path, const TableOptions& options);
  Status Begin(const TableOptions& options);
  Status CheckRows(std::string_view name);
  StatusOr<std::uint64_t> RemoveAll();

  std::unique_ptr<table::TableCore> core_;
  std::string space_;  // the name of its key space, or ""
  bool is_closed_ = false;
};

}  // namespace hako
