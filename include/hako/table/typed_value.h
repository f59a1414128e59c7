// Converts values and literals to the type of their column.
#pragma once

#include "hako/base/status.h"
#include "hako/table/column_names.h"
#include "hako/table/condition.h"

namespace hako::table {

// Returns InvalidArgument, which names the column, if the value is NaN or an integer that exceeds
// int64.
Status CheckValue(std::string_view column, const Value& value);
// Returns the value as the column stores it, or InvalidArgument, which names the column, if it does
// not fit.
StatusOr<Value> TypedValue(const StoredColumn& column, const Value& value);

// Converts a literal for comparison with a column of this type. Returns it unchanged if it cannot
// be converted.
OwnedValue TypedLiteral(ColumnType type, const Value& literal);
// Returns the condition with its literals converted to the present types of the columns. The
// primary key is a string.
Condition TypedCondition(const Condition& condition, const ColumnNames& names);

}  // namespace hako::table
