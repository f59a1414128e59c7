#include "hako/table/index.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/varint.h"
#include "hako/table/query_text.h"
#include "hako/table/words.h"

namespace hako {

std::string_view NameOf(ColumnType type) {
  static constexpr std::array<std::string_view, 6> kNames = {"any", "string", "int64", "double", "bool", "bytes"};
  return kNames[static_cast<std::size_t>(type)];
}
std::string_view NameOf(IndexKind kind) {
  static constexpr std::array<std::string_view, 4> kNames = {"ordered", "numeric", "token", "qgram"};
  return kNames[static_cast<std::size_t>(kind)];
}

namespace table {
namespace {

void AppendNumberTo(std::uint64_t number, std::string* out) {
  std::array<std::byte, kVarint64SizeMax> bytes;
  const std::size_t size = EncodeVarint(number, bytes);
  out->append(reinterpret_cast<const char*>(bytes.data()), size);
}
void AppendString(std::string_view text, std::string* out) {
  AppendNumberTo(text.size(), out);
  out->append(text);
}

constexpr std::uint64_t kPositionsFlag = 32;  // beside the unique flag, and q times 2

// Reads what these functions append. `ok` is false from the first damage on.
struct RecordReader {
  std::string_view rest;
  bool ok = true;

  std::uint64_t Number() {
    std::uint64_t number = 0;
    const std::size_t size = DecodeVarint(std::as_bytes(std::span(rest)), number);
    ok = ok && size != 0;
    rest.remove_prefix(size);
    return ok ? number : 0;
  }
  std::string String() {
    const std::uint64_t size = Number();
    ok = ok && size <= rest.size();
    if (!ok) return {};
    std::string text(rest.substr(0, size));
    rest.remove_prefix(size);
    return text;
  }
};

// Makes a name that differs for indices that differ in columns, kinds, or `where`.
std::string DefaultName(const IndexOptions& options) {
  std::string name;
  for (const IndexColumn& part : options.columns) {
    if (!name.empty()) name.push_back(',');
    if (part.column.find_first_of("\",: ") == part.column.npos) {
      name.append(part.column);
    } else {
      name.push_back('"');
      for (const char c : part.column) name.append(c == '"' ? 2 : 1, c);
      name.push_back('"');
    }
    if (part.kind != IndexKind::kOrdered) absl::StrAppend(&name, ":", ToAbsl(NameOf(part.kind)));
    if (part.kind == IndexKind::kQGram && options.q != IndexOptions().q) absl::StrAppend(&name, ":", options.q);
    if (options.positions) name += ":positions";
  }
  if (!options.where.empty()) absl::StrAppend(&name, " where ", options.where);
  return name;
}

// Returns what an error calls the index, which may not have its name yet.
std::string TitleOf(const IndexOptions& options) {
  return absl::StrCat("index ", options.name.empty() ? DefaultName(options) : options.name);
}

// Adds the names of the columns of a condition.
void AddColumns(const Node& node, std::vector<std::string>* columns) {
  if (node.op > Op::kNot && !node.is_key) columns->push_back(node.column);
  for (const auto& child : node.children) AddColumns(*child, columns);
}

// Whether the condition depends on the words of a text.
bool ReadsWords(const Node& node) {
  return (node.op >= Op::kAllWords && node.op <= Op::kPhrase) ||
         std::ranges::any_of(node.children, [](const auto& child) { return ReadsWords(*child); });
}

StatusOr<Condition> WhereOf(const IndexOptions& options) {
  if (options.where.empty()) return Condition();
  StatusOr<Condition> where = ParseCondition(options.where);
  if (where.ok()) HAKO_RETURN_IF_ERROR(where->status());
  if (!where.ok()) return Status(where.status().code(), absl::StrCat(TitleOf(options), ": ", where.status().message()));
  return where;
}

Status CheckOptions(const IndexOptions& options) {
  if (options.columns.empty()) return absl::InvalidArgumentError("an index needs a column");
  if (options.columns.size() > TableLimits::kIndexedColumns)
    return absl::OutOfRangeError(absl::StrCat(TitleOf(options), " has more than ", TableLimits::kIndexedColumns, " columns"));
  if (options.name.size() > TableLimits::kColumnName)
    return TooLargeError("the name of an index", options.name.size(), TableLimits::kColumnName);
  const auto is_words = [](const IndexColumn& part) { return part.kind >= IndexKind::kToken; };
  const bool has_words = std::any_of(options.columns.begin(), options.columns.end(), is_words);
  if (has_words && (options.columns.size() > 1 || options.unique || !options.covering.empty()))
    return absl::InvalidArgumentError(
        absl::StrCat(TitleOf(options), ": one of words or q-grams has one column, is not unique and covers no other"));
  if (options.positions && !has_words)
    return absl::InvalidArgumentError(absl::StrCat(TitleOf(options), ": only an index of words or q-grams has positions"));
  if (options.q < 1 || options.q > 8)
    return absl::InvalidArgumentError(absl::StrCat(TitleOf(options), ": q must be 1 to 8, and is ", options.q));
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<std::string>> Index::ColumnsOf(const IndexOptions& options) {
  HAKO_RETURN_IF_ERROR(CheckOptions(options));
  HAKO_ASSIGN_OR_RETURN(const Condition where, WhereOf(options));
  std::vector<std::string> columns;
  for (const IndexColumn& part : options.columns) columns.push_back(part.column);
  columns.insert(columns.end(), options.covering.begin(), options.covering.end());
  if (where.node() != nullptr) table::AddColumns(*where.node(), &columns);
  return columns;
}

StatusOr<std::unique_ptr<Index>> Index::Make(std::uint16_t number, IndexOptions options, IndexState state, FindColumn find) {
  HAKO_ASSIGN_OR_RETURN(const std::vector<std::string> columns, ColumnsOf(options));
  if (options.name.empty()) {
    options.name = DefaultName(options);
    if (options.name.size() > TableLimits::kColumnName)
      return absl::OutOfRangeError(absl::StrCat("the index of ", options.columns[0].column,
                                                " needs a name: the one that follows from its columns is longer than ",
                                                TableLimits::kColumnName, " bytes"));
  }
  for (const std::string& name : columns) {
    if (find(name) == nullptr) return absl::DataLossError(absl::StrCat("index ", options.name, ": the table has no column ", name));
  }
  std::unique_ptr<Index> index(new Index);
  for (const IndexColumn& part : options.columns) {
    index->parts_.push_back({find(part.column)->id, part.kind});
    index->covered_.push_back(index->parts_.back().column);
  }
  for (const std::string& name : options.covering) index->covered_.push_back(find(name)->id);
  std::sort(index->covered_.begin(), index->covered_.end());
  index->covered_.erase(std::unique(index->covered_.begin(), index->covered_.end()), index->covered_.end());
  HAKO_ASSIGN_OR_RETURN(index->where_, WhereOf(options));
  index->filter_ = Filter(index->where_, find);
  const auto& where = index->where_.node();
  if (index->parts_[0].kind == IndexKind::kToken || (where != nullptr && ReadsWords(*where))) index->present_tables_ = WordTables();
  index->tables_ = index->present_tables_;
  index->number_ = number;
  index->prefix_ = EntryPrefix(number);
  index->options_ = std::move(options);
  index->set_state(state);
  return index;
}

Status Index::AddEntries(std::string_view key, const RowView& row, Entries* entries) const {
  if (!filter_.IsAlways() && !filter_.Matches(key, row)) return absl::OkStatus();
  HAKO_DCHECK(!is_text());
  std::string* const out = entries->Begin();
  out->append(prefix_);
  bool has_all = true;
  for (const IndexPart& part : parts_) has_all = AppendPart(row.Get(part.column), part.kind, out) && has_all;
  if (const std::size_t size = entries->open_size(); size > TableLimits::kIndexedSize) {
    entries->Cancel();
    return TooLargeError(absl::StrCat("the value of ", options_.columns[0].column, " in index ", name()), size, TableLimits::kIndexedSize);
  }
  const bool is_free = is_unique() && has_all;  // the key of the entry must be free
  if (!is_free) out->append(key);
  entries->EndKey();
  if (is_free) AppendString(key, out);
  if (is_covering()) {
    thread_local RowBuilder builder;
    builder.Begin();
    for (const ColumnId column : covered_) builder.Add(column, row.Get(column));
    out->append(builder.End());
  }
  entries->End(is_free);
  return absl::OkStatus();
}

void Index::ForEachList(std::string_view key, const RowView& row, VisitList visit) const {
  HAKO_DCHECK(is_text());
  if (!filter_.IsAlways() && !filter_.Matches(key, row)) return;
  std::string buffer;
  const std::string_view text = row.Get(parts_[0].column).Text(&buffer);
  static constexpr std::size_t kCharacterMax = 4, kGramMax = 8 * kCharacterMax;
  char list[3 + std::max(kWordMax, kGramMax)];
  const std::size_t begin = prefix_.copy(list, 3);
  const auto show = [&](std::string_view word, std::size_t position) {
    visit({list, begin + word.copy(list + begin, sizeof(list) - begin)},
          has_positions() ? static_cast<std::uint32_t>(position) : kNoPosition);
  };
  if (parts_[0].kind == IndexKind::kToken) {
    for (WordReader reader(text); reader.Next();) {
      if (reader.word().find('\0') == std::string_view::npos) show(reader.word(), reader.position());
    }
  } else {
    ForEachGramBeginning(text, options_.q, [&](std::string_view gram) { show(gram, static_cast<std::size_t>(gram.data() - text.data())); });
  }
}

Status Index::CheckNumWords(std::size_t count) const {
  const std::size_t num_shorter = parts_[0].kind == IndexKind::kQGram ? options_.q - 1 : 0;  // at the end of the text
  if (count <= TableLimits::kEntriesOfRow + num_shorter) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("column ", options_.columns[0].column, " has more than ", TableLimits::kEntriesOfRow,
                                            " different words or q-grams, the limit of index ", name()));
}

Index::RowOfEntry Index::Row(std::string_view entry_key, std::string_view entry_value) const {
  if (!entry_key.starts_with(prefix_)) return {};
  entry_key.remove_prefix(prefix_.size());
  bool has_all = true;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t size = PartLength(entry_key);
    if (size == 0) return {};
    has_all = has_all && entry_key[0] != kNullPart;
    entry_key.remove_prefix(size);
  }
  if (!is_unique() || !has_all) return {entry_key, entry_value, true};
  std::uint64_t size = 0;
  const std::size_t taken = DecodeVarint(std::as_bytes(std::span(entry_value)), size);
  if (taken == 0 || size > entry_value.size() - taken || !entry_key.empty()) return {};
  return {entry_value.substr(taken, size), entry_value.substr(taken + size), true};
}

std::string Index::Encode(IndexState state) const {
  std::string record;
  AppendNumberTo(static_cast<std::uint64_t>(state), &record);
  AppendString(options_.name, &record);
  AppendNumberTo((options_.unique ? 1u : 0u) | options_.q << 1 | (options_.positions ? kPositionsFlag : 0u), &record);
  AppendNumberTo(options_.columns.size(), &record);
  for (const IndexColumn& part : options_.columns) {
    AppendNumberTo(static_cast<std::uint64_t>(part.kind), &record);
    AppendString(part.column, &record);
  }
  AppendNumberTo(options_.covering.size(), &record);
  for (const std::string& column : options_.covering) AppendString(column, &record);
  AppendString(options_.where, &record);
  AppendString(tables_, &record);
  return record;
}

StatusOr<Index::Record> Index::Decode(std::string_view bytes) {
  RecordReader record{bytes};
  IndexOptions options;
  const std::uint64_t state = record.Number();
  options.name = record.String();
  const std::uint64_t flags = record.Number();
  options.unique = (flags & 1) != 0;
  options.q = static_cast<unsigned>(flags % kPositionsFlag >> 1);
  options.positions = flags >= kPositionsFlag;
  record.ok = record.ok && flags < 2 * kPositionsFlag;
  for (std::uint64_t count = record.Number(); record.ok && count > 0; --count) {
    const std::uint64_t kind = record.Number();
    record.ok = record.ok && kind <= static_cast<std::uint64_t>(IndexKind::kQGram);
    options.columns.push_back({record.String(), static_cast<IndexKind>(kind)});
  }
  for (std::uint64_t count = record.Number(); record.ok && count > 0; --count) options.covering.push_back(record.String());
  options.where = record.String();
  std::string tables = record.String();
  if (!record.ok || !record.rest.empty() || state < 1 || state > 3) return absl::DataLossError("the record of an index is damaged");
  return Record{std::move(options), static_cast<IndexState>(state), std::move(tables)};
}

}  // namespace table
}  // namespace hako
