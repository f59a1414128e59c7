// hako's TableDBM with its default options: an index of tokens and one of 3-grams, with --positions=1 with
// positions.
#include "hako/table/table_dbm.h"
#include "texts.h"

namespace hako::compare {

class TextsHako {
 public:
  static constexpr const char* kName = "hako";
  static constexpr unsigned kIndices = kWords | kGrams;
  static constexpr bool kBuilds = true, kHasOwnWords = false, kFindsMore = false;
  static inline bool has_positions = false;

  bool Open(const std::string& path, const Texts& texts, unsigned indices, bool creates) {
    TableOptions options;
    if (creates) options.file.mode = OpenMode::kTruncate;
    auto table = TableDBM::Open(path + ".hktb", options);
    if (!table.ok()) return Good(table.status());
    table_ = *std::move(table);
    columns_ = texts.columns;
    if (!creates) return FindColumns();
    for (std::size_t i = 1; i < columns_.size(); ++i) {
      if (!Good(table_->SetColumn(columns_[i], {.type = ColumnType::kString}))) return false;
    }
    for (const unsigned kind : {kWords, kGrams}) {
      if ((indices & kind) != 0 && !Build(kind)) return false;
    }
    return FindColumns();
  }
  bool Put(const TextRow* rows, std::size_t count) {
    batch_.Clear();
    for (std::size_t i = 0; i < count; ++i) batch_.Put(rows[i].key(), CellsOf(rows[i]));
    return Good(table_->Write(batch_));
  }
  bool Flush() { return true; }
  bool Build(unsigned kind) {
    return Good(table_->CreateIndex(
        {.columns = {{columns_.back(), kind == kWords ? IndexKind::kToken : IndexKind::kQGram}}, .positions = has_positions}));
  }
  bool Merge(unsigned) { return true; }
  bool Compact() { return Good(table_->Rebuild()); }
  bool Close() { return Good(table_->Close()); }

  bool Answers(const TextQuery&) { return true; }
  bool Count(const TextQuery& query, std::uint64_t* count) {
    const auto found = table_->Select().Where(ConditionOf(query)).Count();
    if (found.ok()) *count = *found;
    return Good(found.status());
  }
  bool First(const TextQuery& query, TableSum* sum, std::uint64_t* rows) {
    return Good(table_->Select().Where(ConditionOf(query)).Limit(10).Each([&](std::string_view key, const RowView& row) {
      sum->Add(key);
      for (const ColumnId id : ids_) sum->Add(row.Get(id).bytes());
      return ++*rows, true;
    }));
  }

  bool BeginSingles() { return true; }
  bool PutRow(const std::string& key, const TextRow& row) { return Good(table_->Put(key, CellsOf(row))); }
  bool UpdateRow(const TextRow& row, const TextRow& other) { return Good(table_->Update(row.key(), {{columns_.back(), other.text()}})); }
  bool RemoveRow(const std::string& key) { return Good(table_->Remove(key)); }

 private:
  static bool Good(const Status& status) {
    if (!status.ok()) std::fprintf(stderr, "hako: %s\n", status.ToString().c_str());
    return status.ok();
  }
  bool FindColumns() {
    ids_.clear();
    for (std::size_t i = 1; i < columns_.size(); ++i) {
      const auto id = table_->FindColumn(columns_[i]);
      if (!id.ok()) return Good(id.status());
      ids_.push_back(*id);
    }
    return true;
  }
  std::span<const Cell> CellsOf(const TextRow& row) {
    cells_.clear();
    for (std::size_t i = 1; i < columns_.size(); ++i) cells_.push_back({columns_[i], row.cells[i]});
    return cells_;
  }
  Condition ConditionOf(const TextQuery& query) const {
    const Column text(columns_.back());
    if (query.kind == TextQuery::kPhrase) return text.HasPhrase(query.argument);
    if (query.kind == TextQuery::kNotWord) return text.HasAll(query.First()) && !text.HasAll(query.Second());
    return query.IsOfWords() ? text.HasAll(query.argument) : text.Contains(query.argument);
  }

  std::unique_ptr<TableDBM> table_;
  TableBatch batch_;
  std::vector<std::string> columns_;
  std::vector<ColumnId> ids_;
  std::vector<Cell> cells_;
};

}  // namespace hako::compare

int main(int argc, char** argv) {
  using hako::compare::TextsHako;
  for (int i = 1; i < argc; ++i) TextsHako::has_positions = TextsHako::has_positions || argv[i] == std::string_view("--positions=1");
  return hako::compare::TextsMain<TextsHako>(argc, argv);
}
