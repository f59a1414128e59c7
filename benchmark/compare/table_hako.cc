// hako's TableDBM with its default options. With HAKO_TYPED its columns have types: a number is an int64,
// stored and compared as that.
#include "hako/table/table_dbm.h"
#include "table.h"

namespace hako::compare {

class TableHako {
 public:
#ifdef HAKO_TYPED
  static constexpr bool kTyped = true;
  static constexpr const char* kName = "hako_typed";
#else
  static constexpr bool kTyped = false;
  static constexpr const char* kName = "hako";
#endif

  bool Open(const std::string& path, std::uint64_t, bool text) {
    TableOptions options;
    options.file.mode = OpenMode::kTruncate;
    auto table = TableDBM::Open(path + ".hktb", options);
    if (!table.ok()) return false;
    table_ = *std::move(table);
    for (const char* name : {"str", "num", "a", "b", "text"}) {
      if (!table_->SetColumn(name, {.type = !kTyped ? ColumnType::kAny : name[0] == 'n' ? ColumnType::kInt64 : ColumnType::kString}).ok())
        return false;
    }
    for (const int i : {0, 1, 2, 3}) ids_[i] = *table_->FindColumn(kNames[i]);
    if (text)
      return table_->CreateIndex({.columns = {{"text", IndexKind::kToken}}}).ok() &&
             table_->CreateIndex({.columns = {{"text", IndexKind::kQGram}}}).ok();
    return table_->CreateIndex({.columns = {{"str"}}}).ok() &&
           table_->CreateIndex({.columns = {{"num", kTyped ? IndexKind::kOrdered : IndexKind::kNumeric}}}).ok();
  }
  bool Put(const TableRow* rows, std::uint64_t count) {
    if (count == 1) return table_->Put(rows->key, {{"str", rows->str}, {"num", rows->num}, {"a", rows->a}, {"b", rows->b}}).ok();
    batch_.Clear();
    for (std::uint64_t i = 0; i < count; ++i)
      batch_.Put(rows[i].key, {{"str", rows[i].str}, {"num", rows[i].num}, {"a", rows[i].a}, {"b", rows[i].b}});
    return table_->Write(batch_).ok();
  }
  bool PutTexts(const TableRow* rows, std::uint64_t count) {
    batch_.Clear();
    for (std::uint64_t i = 0; i < count; ++i) batch_.Put(rows[i].key, {{"text", rows[i].text}});
    return table_->Write(batch_).ok();
  }
  bool Flush() { return true; }
  bool Get(const std::string& key, TableSum* sum) {
    return table_->Get(key, [&](const RowView& row) { Show(key, row, sum); }).ok();
  }
  bool Search(const std::string& str, TableSum* sum) { return Run(table_->Select().Where(Column("str") == str), sum); }
  bool Range(std::uint64_t low, std::uint64_t high, TableSum* sum) {
    if (kTyped)
      return Run(table_->Select()
                     .Where(Column("num").Between(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)))
                     .OrderBy("num")
                     .Limit(10),
                 sum);
    return Run(table_->Select()
                   .Where(Column("num").Numeric().Between(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)))
                   .OrderBy("num", RowOrder::kNumericAscending)
                   .Limit(10),
               sum);
  }
  bool Substring(const std::string& piece, TableSum* sum) {
    return RunKeys(table_->Select().Where(Column("text").Contains(piece)).Columns({}), sum);
  }
  bool Words(const std::string& words, TableSum* sum) {
    return RunKeys(table_->Select().Where(Column("text").HasAll(words)).Columns({}), sum);
  }
  bool Close() { return table_->Close().ok(); }

 private:
  static constexpr const char* kNames[] = {"str", "num", "a", "b"};
  void Show(std::string_view key, const RowView& row, TableSum* sum) {
    sum->Add(key);
    for (const ColumnId id : ids_) {
      const Value cell = row.Get(id);
      if (kTyped && cell.kind() == Value::Kind::kInt) {
        char text[20];
        sum->Add({text, std::to_chars(text, text + sizeof(text), cell.int_value()).ptr});
      } else {
        sum->Add(cell.bytes());
      }
    }
  }
  bool Run(const Query& query, TableSum* sum) {
    return query.Each([&](std::string_view key, const RowView& row) { return Show(key, row, sum), true; }).ok();
  }
  bool RunKeys(const Query& query, TableSum* sum) {
    return query.Each([&](std::string_view key, const RowView&) { return sum->Add(key), true; }).ok();
  }

  std::unique_ptr<TableDBM> table_;
  TableBatch batch_;
  ColumnId ids_[4];
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TableMain<hako::compare::TableHako>(argc, argv); }
