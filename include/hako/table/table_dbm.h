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
// by their types: see table/value.h. Rows, the entries of
// indices, and the catalogue of both are records of one TreeDBM, or of a BabyDBM in memory
// (table/index_key.h). Each change of a row and of its entries is one atomic step: no reader and no
// crash separates them.
//
// Durability: as that of TreeDBM, by TableOptions::tree.durability. Table files have the type
// kTableType (dbm/options.h): TreeDBM and AnyDBM refuse them, and Open refuses a plain tree.
//
// Limits: TableLimits (table/schema.h).
//
// Threads: any, except Close and the destructor. There is no lock of the table: writers of different
// rows run beside each other, and readers take no lock. A query is not a snapshot: see table/query.h.
// Visitors may read the table, but not change it.
//
// Errors: as in base/status.h. A row that is absent is NotFound, one that should not exist is
// AlreadyExists, both with an empty message; a value that a unique index has is AlreadyExists with a
// message. Errors name the column or the index, and change nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/dbm/options.h"
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
class TableStore;
}  // namespace table

// Options of TableDBM::Open.
struct TableOptions {
  TreeOptions tree = {};  // of the tree in the file; its `type` and `raw` are not used
  FileOptions file = {};  // of the file
  // The file is read and written by position instead of mapped into memory, as by
  // TreeDBM<PositionalParallelFile>. So it is with FileOptions::direct, too.
  bool positional = false;
  // The first columns of a new table, which are stored together. An existing table ignores them, but
  // malformed ones are refused in any case.
  std::vector<std::pair<std::string, ColumnOptions>> columns = {};
  // Of a new table: rows have no other columns than those of SetColumn and `columns`.
  bool closed_schema = false;
  // Bytes of keys and values that one query may sort or group in memory.
  std::uint64_t sort_bytes = std::uint64_t{256} << 20;
};

// Changes of rows that Write makes together. It has its own bytes. A later change of a row sees the
// earlier ones.
class TableBatch {
 public:
  // As the functions of TableDBM.
  void Put(std::string_view key, std::span<const Cell> cells) { Add(0, key, cells); }
  void Put(std::string_view key, std::initializer_list<Cell> cells) { Put(key, std::span(cells.begin(), cells.size())); }
  void PutKeep(std::string_view key, std::span<const Cell> cells) { Add(1, key, cells); }
  void PutKeep(std::string_view key, std::initializer_list<Cell> cells) { PutKeep(key, std::span(cells.begin(), cells.size())); }
  void Update(std::string_view key, std::span<const Cell> cells) { Add(2, key, cells); }
  void Update(std::string_view key, std::initializer_list<Cell> cells) { Update(key, std::span(cells.begin(), cells.size())); }
  void Append(std::string_view key, std::span<const Cell> cells) { Add(3, key, cells); }
  void Append(std::string_view key, std::initializer_list<Cell> cells) { Append(key, std::span(cells.begin(), cells.size())); }
  void Remove(std::string_view key) { Add(4, key, {}); }

  // Removes all changes, and keeps the memory.
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
  // Opens the table at `path`, creating one if the file is new. InvalidArgument if the file is no
  // table; otherwise as TreeDBM::Open. A file that it has created and cannot make a table is removed. An
  // index whose creation a crash has cut short is completed, one whose removal was cut short is removed.
  static StatusOr<std::unique_ptr<TableDBM>> Open(const std::string& path, const TableOptions& options = {});
  // Opens an empty table in memory only. InvalidArgument for an option out of range, or one that requires a file:
  // Durability::kPower, a log archive.
  static StatusOr<std::unique_ptr<TableDBM>> OpenInMemory(const TableOptions& options = {});
  // Opens the table in a database of any file, which is new if it has no records.
  static StatusOr<std::unique_ptr<TableDBM>> Open(std::unique_ptr<table::TableStore> store, const TableOptions& options);
  // Writes the undamaged rows of a damaged table at `from` into a new one at `to`, with the catalogue and new
  // indices; see dbm/salvage.h. Keys, ranges and numbers of the report are those of rows; lost rows whose keys
  // other records show are listed as places. Its notes say which columns and indices are lost.
  static StatusOr<SalvageReport> Salvage(const std::string& from, const std::string& to, const FileOptions& options = {});
  // Closes the table if the application has not.
  ~TableDBM();
  TableDBM(const TableDBM&) = delete;
  TableDBM& operator=(const TableDBM&) = delete;

  // Stores a row, replacing an existing one as a whole. Cells of null are left out.
  Status Put(std::string_view key, std::span<const Cell> cells);
  Status Put(std::string_view key, std::initializer_list<Cell> cells) { return Put(key, std::span(cells.begin(), cells.size())); }
  // Stores a new row. AlreadyExists if there is one.
  Status PutKeep(std::string_view key, std::span<const Cell> cells);
  Status PutKeep(std::string_view key, std::initializer_list<Cell> cells) { return PutKeep(key, std::span(cells.begin(), cells.size())); }
  // Sets some columns of a row; null removes a column. NotFound if there is no row.
  Status Update(std::string_view key, std::span<const Cell> cells);
  Status Update(std::string_view key, std::initializer_list<Cell> cells) { return Update(key, std::span(cells.begin(), cells.size())); }
  // Appends to the text of some columns, which become bytes; stores the row if there is none.
  Status Append(std::string_view key, std::span<const Cell> cells);
  Status Append(std::string_view key, std::initializer_list<Cell> cells) { return Append(key, std::span(cells.begin(), cells.size())); }
  // Removes a row. NotFound if there is none.
  Status Remove(std::string_view key);
  // Makes all changes in one atomic step, or none. An error names the row.
  Status Write(const TableBatch& batch);

  // Copies a row into *row, reusing its memory. NotFound if there is none.
  Status Get(std::string_view key, Row* row);
  StatusOr<Row> Get(std::string_view key);
  // Shows a row, of which nothing is locked or allocated unless it is long.
  Status Get(std::string_view key, FunctionRef<void(const RowView&)> visitor);
  // Whether there is a row.
  StatusOr<bool> Contains(std::string_view key);
  // The number of rows; exact while none is changed.
  StatusOr<std::uint64_t> Count();

  // A query of all rows: see table/query.h. The table must outlive it.
  Query Select() { return Query(core_.get()); }
  // The query of a statement (table/query_text.h): its condition and, except beside functions, its order and
  // limits. InvalidArgument, which names the position, if it reads a column that no row has had.
  StatusOr<Query> Select(const Statement& statement);
  // Runs a statement: shows the rows of a select until `show` returns false, or changes rows; returns their
  // number. See table/statement_run.h.
  StatusOr<std::uint64_t> Run(const Statement& statement, FunctionRef<bool(const ResultRow& row)> show,
                              const StatementOptions& options = {});

  // The number of a column for RowView::Get, which is faster than by its name. NotFound if no row has
  // ever had it.
  StatusOr<ColumnId> FindColumn(std::string_view name) const;
  // All columns that rows have had, in the order of their numbers.
  std::vector<ColumnInfo> Columns() const;
  // Whether rows may have no other columns (TableOptions::closed_schema).
  bool HasClosedSchema() const;
  // Gives a column this type and these rules, in place of those that it had, beside readers and writers. FailedPrecondition, which names a
  // row, if an existing row does not keep them; AlreadyExists if it is to be unique and two rows have
  // the same value. Writers keep the rules while the rows are checked. `unique` creates an index, unless
  // there is one.
  Status SetColumn(std::string_view name, const ColumnOptions& options);

  // Creates an index beside readers and writers, in parts; returns once it is ready. AlreadyExists if
  // there is one of the name, or if it is to be unique and two rows have the same value. A column of it
  // that no row has yet, also in `where`, is added; InvalidArgument if the table takes no others. Writers
  // that would add a column wait meanwhile.
  Status CreateIndex(const IndexOptions& options);
  // Drops an index, once the queries that use it have ended. NotFound if there is none. If it is OK the
  // index is gone, also after a crash, but an error may leave its space in use until the next call of
  // this kind, or Close. FailedPrecondition if a query of this thread uses the index, whose visitor calls this.
  Status DropIndex(std::string_view name);
  std::vector<IndexInfo> Indices() const;

  // Removes all rows in one atomic step. Columns and indices stay. Loads the whole table into memory:
  // of a large one, remove the file instead. Stops writers meanwhile.
  Status Clear();
  // As those of TreeDBM.
  Status Synchronize(SyncMode mode);
  std::uint64_t LastLsn();
  Status WaitDurable(std::uint64_t lsn);
  Status CopyTo(const std::string& path);
  bool ShouldBeRebuilt();
  Status Rebuild();
  // As that of TreeDBM: reads the file from its device, a part at a time. Of a table in memory each call
  // completes a pass over 0 bytes.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {});
  // Checks the structure of the tree, each row, and that the entries of all indices are exactly those
  // of the rows. DataLoss names the damage. Beside readers and writers.
  Status Verify();
  Stats GetStats();
  Inspection Inspect();
  bool IsWritable() const;
  Status GetHealth() const;
  // Synchronizes and closes the file. Returns the first error.
  // REQUIRES: no other thread uses the table, and no query of it exists (checked in WriterStates::Close)
  Status Close();

 private:
  explicit TableDBM(std::unique_ptr<table::TableCore> core);
  // Open. `on_failure` runs while the store is still open.
  static StatusOr<std::unique_ptr<TableDBM>> OpenIn(std::unique_ptr<table::TableStore> store, const TableOptions& options,
                                                    FunctionRef<void()> on_failure);
  Status Begin(const TableOptions& options);
  Status CheckRows(std::string_view name);
  StatusOr<std::uint64_t> RemoveAll();

  std::unique_ptr<table::TableCore> core_;
  bool is_closed_ = false;
};

}  // namespace hako
