// TableCursor: the position where the next page of a query begins. It has no state in the server: its text
// is sent to the client and back, so it can be used at any time, even after a restart.
//
// The text: the number of rows left, or "-"; a dot; the size of the last key in decimal, a dot, and the key;
// "v" and the text of that row in the `order by` column, or "n" if the row or the query has none.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hako::server {

struct TableCursor {
  std::optional<std::uint64_t> left;  // rows, of a query with a limit
  std::string key;                    // of the last row
  std::optional<std::string> value;   // of the last row, in the column of the order

  std::string ToText() const {
    std::string text = (left ? std::to_string(*left) : "-") + "." + std::to_string(key.size()) + "." + key;
    text += value ? 'v' : 'n';
    return value ? text + *value : text;
  }
  static std::optional<TableCursor> Parse(std::string_view text) {
    TableCursor cursor;
    std::uint64_t size = 0;
    if (text.starts_with("-."))
      text.remove_prefix(2);
    else if (!TakeNumber(&text, &cursor.left.emplace()))
      return std::nullopt;
    if (!TakeNumber(&text, &size) || size >= text.size()) return std::nullopt;
    cursor.key = text.substr(0, size);
    const char kind = text[size];
    text.remove_prefix(size + 1);
    if (kind == 'v')
      cursor.value = std::string(text);
    else if (kind != 'n' || !text.empty())
      return std::nullopt;
    return cursor;
  }

 private:
  // A decimal number and a dot.
  static bool TakeNumber(std::string_view* text, std::uint64_t* number) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
    if (error != std::errc() || end == text->data() + text->size() || *end != '.') return false;
    text->remove_prefix(static_cast<std::size_t>(end - text->data()) + 1);
    return true;
  }
};

}  // namespace hako::server
