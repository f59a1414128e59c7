// Values as the type of their column has them.
#pragma once

#include "hako/base/status.h"
#include "hako/table/column_names.h"

namespace hako::table {

// The value as the column stores it. InvalidArgument that names the column if it does not fit.
StatusOr<Value> TypedValue(const StoredColumn& column, const Value& value);

}  // namespace hako::table
