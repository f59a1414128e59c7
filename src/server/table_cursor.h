// TableCursor: the position where the next page of a query begins. It takes no state in the server:
// the client gets its text and sends it back, so the client can use it at any time, even after a
// restart of the server.
//
// The text: the number of rows left, or "-"; a dot; the size of the last key in decimal, a dot, and the key;
// the value of that row in the `order by` column: "n" if the row or the query has none, else "t", "i", "d" or
// "b" for bytes, an int64, a double or a bool, and its text.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hako/table/value.h"

namespace hako::server {

struct TableCursor {
  std::optional<std::uint64_t> left;  // number of rows left, in a query with a limit
  std::string key;                    // of the last row
  OwnedValue value;                   // of the last row, in the column of the order

  std::string ToText() const {
    std::string text = (left ? std::to_string(*left) : "-") + "." + std::to_string(key.size()) + "." + key;
    text += kKinds[static_cast<std::size_t>(value.get().kind())];
    return text + value.get().ToText();
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
    const std::size_t found = kKinds.find(kind);
    if (found == kKinds.npos || !TakeValue(static_cast<Value::Kind>(found), text, &cursor.value)) return std::nullopt;
    return cursor;
  }

 private:
  static constexpr std::string_view kKinds = "ntidb";  // in the order of Value::Kind

  static bool TakeValue(Value::Kind kind, std::string_view text, OwnedValue* value) {
    switch (kind) {
      case Value::Kind::kNull:
        return text.empty();
      case Value::Kind::kBytes:
        *value = text;
        return true;
      case Value::Kind::kInt:
        return TakeWhole<std::int64_t>(text, value);
      case Value::Kind::kDouble:
        return TakeWhole<double>(text, value) && !std::isnan(value->get().double_value());
      case Value::Kind::kBool:
        *value = text == "true";
        return text == "true" || text == "false";
    }
    return false;
  }
  template <class T>
  static bool TakeWhole(std::string_view text, OwnedValue* value) {
    T number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    *value = number;
    return error == std::errc() && end == text.data() + text.size();
  }
  // Takes a decimal number and a dot.
  static bool TakeNumber(std::string_view* text, std::uint64_t* number) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
    if (error != std::errc() || end == text->data() + text->size() || *end != '.') return false;
    text->remove_prefix(static_cast<std::size_t>(end - text->data()) + 1);
    return true;
  }
};

}  // namespace hako::server
