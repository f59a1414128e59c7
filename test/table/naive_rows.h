// A naive loop over all rows of a table, to compare its indices with. The answers are computed here, from the
// texts of the cells, and share no code with the queries.
//
// A table that is checked has columns of integers, texts without numbers, or words with one blank between
// them, and indices whose condition is that a column is null, is not null, or is a text.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/table/table_dbm.h"
#include "support/status_matchers.h"

namespace hako {

class NaiveRows {
 public:
  explicit NaiveRows(TableDBM& table) : table_(table) {
    EXPECT_THAT(table.Select().Each([this](std::string_view key, const RowView& view) {
      auto& row = rows_[std::string(key)];
      for (std::size_t i = 0; i < view.size(); ++i) row[std::string(view.name(i))] = view.value(i).ToText();
      return true;
    }),
                IsOk());
  }

  std::size_t size() const { return rows_.size(); }
  const std::map<std::string, std::map<std::string, std::string>>& rows() const { return rows_; }

  // How many queries of the indices have another answer than the loop, of at most so many values of each index.
  int CountWrongAnswers(std::size_t most_values) {
    int wrong = 0;
    EXPECT_THAT(table_.Count(), IsOkAndHolds(rows_.size()));
    for (const IndexInfo& info : table_.Indices()) {
      EXPECT_TRUE(info.is_ready) << info.options.name;
      wrong += CountWrong(info.options, most_values);
      if (info.options.unique) wrong += CountRepeated(info.options);
    }
    return wrong;
  }
  int num_queries() const { return num_queries_; }

 private:
  std::optional<std::string> Cell(const std::map<std::string, std::string>& row, const std::string& column) const {
    const auto it = row.find(column);
    return it == row.end() ? std::nullopt : std::optional(it->second);
  }
  bool IsIn(const IndexOptions& index, const std::map<std::string, std::string>& row) const {
    if (index.where.empty()) return true;
    const std::size_t blank = index.where.find(' ');
    const std::optional<std::string> cell = Cell(row, index.where.substr(0, blank));
    const std::string test = index.where.substr(blank + 1);
    if (test == "is null") return !cell;
    if (test == "is not null") return cell.has_value();
    EXPECT_TRUE(test.starts_with("= '")) << "unknown condition " << index.where;
    return cell == test.substr(3, test.size() - 4);
  }
  static Value Literal(const std::string& text) {
    const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    return is_number ? Value(static_cast<std::int64_t>(std::stoll(text))) : Value(text);
  }

  int CountWrong(const IndexOptions& index, std::size_t most_values) {
    const IndexColumn& part = index.columns[0];
    std::set<std::string> asked;
    for (const auto& [key, row] : rows_) {
      const std::optional<std::string> cell = Cell(row, part.column);
      if (!cell) continue;
      if (part.kind == IndexKind::kToken) {
        for (std::size_t begin = 0; begin < cell->size();) {
          const std::size_t end = std::min(cell->find(' ', begin), cell->size());
          asked.insert(cell->substr(begin, end - begin));
          begin = end + 1;
        }
      } else if (part.kind == IndexKind::kQGram) {
        asked.insert(cell->substr(0, 5));
        asked.insert(cell->substr(cell->size() / 2));
      } else {
        asked.insert(*cell);
      }
    }
    asked.insert("77777");
    int wrong = 0;
    const std::size_t stride = asked.size() / most_values + 1;
    std::size_t at = rows_.size();  // other values in other states
    for (const std::string& text : asked) {
      if (++at % stride != 0) continue;
      Condition condition;
      if (part.kind == IndexKind::kToken)
        condition = Column(part.column).HasAll(text);
      else if (part.kind == IndexKind::kQGram)
        condition = Column(part.column).Contains(text);
      else
        condition = Column(part.column) == Literal(text);
      std::vector<std::string> expected;
      for (const auto& [key, row] : rows_) {
        const std::optional<std::string> cell = Cell(row, part.column);
        if (!cell || !IsIn(index, row)) continue;
        const bool is_found = part.kind == IndexKind::kToken   ? (" " + *cell + " ").find(" " + text + " ") != std::string::npos
                              : part.kind == IndexKind::kQGram ? cell->find(text) != std::string::npos
                                                               : *cell == text;
        if (is_found) expected.push_back(key);
      }
      Query query = table_.Select().Where(condition);
      if (!index.where.empty()) query.And(*ParseCondition(index.where));
      auto found = query.Keys();
      EXPECT_THAT(found, IsOk());
      std::sort(found->begin(), found->end());
      ++num_queries_;
      if (*found == expected) continue;
      if (wrong++ == 0)
        ADD_FAILURE() << "index " << index.name << ": " << condition.ToText() << " finds " << found->size() << " rows, not "
                      << expected.size();
    }
    return wrong;
  }

  // Of a unique index, rows with the values of another one.
  int CountRepeated(const IndexOptions& index) {
    std::map<std::vector<std::string>, std::string> row_of;
    int wrong = 0;
    for (const auto& [key, row] : rows_) {
      if (!IsIn(index, row)) continue;
      std::vector<std::string> values;
      for (const IndexColumn& part : index.columns) {
        if (const auto cell = Cell(row, part.column)) values.push_back(*cell);
      }
      if (values.size() < index.columns.size()) continue;
      const auto [it, is_new] = row_of.emplace(values, key);
      if (is_new) continue;
      ++wrong;
      ADD_FAILURE() << "unique index " << index.name << ": rows " << it->second << " and " << key << " have the same values";
    }
    return wrong;
  }

  TableDBM& table_;
  std::map<std::string, std::map<std::string, std::string>> rows_;
  int num_queries_ = 0;
};

}  // namespace hako
