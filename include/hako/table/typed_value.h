// Values and literals as the type of their column has them.
#pragma once

#include "hako/base/status.h"
#include "hako/table/column_names.h"
#include "hako/table/condition.h"

namespace hako::table {

// InvalidArgument, which names the column, if this is NaN or an integer that exceeds int64.
Status CheckValue(std::string_view column, const Value& value);
// The value as the column stores it. InvalidArgument that names the column if it does not fit.
StatusOr<Value> TypedValue(const StoredColumn& column, const Value& value);

// The literal as it is compared with a column of this type: converted if it can be, else as it is.
OwnedValue TypedLiteral(ColumnType type, const Value& literal);
// The condition with its literals so, by the types that the columns have now. The primary key is a string.
Condition TypedCondition(const Condition& condition, const ColumnNames& names);

}  // namespace hako::table
