// The salvage of a table (TableDBM::Salvage): makes a valid table of the records that were salvaged
// from its tree.
//
// Only the catalogue and the rows are kept. The entries of the indices and the number of rows are
// rebuilt from them. If the record of a column is lost and rows have cells of it, it gets the name
// lost_column_NUMBER, so that no other column gets its number. An index is dropped if its record is
// damaged, if a column of it is lost, or if it is unique and two rows have the same value.
#pragma once

#include <memory>

#include "hako/base/status.h"
#include "hako/dbm/any_model.h"
#include "hako/storage/salvage_report.h"

namespace hako::table {

// Completes the report, whose keys are keys of rows from here on, and closes the store.
Status RepairSalvaged(std::unique_ptr<internal::AnyDatabase> store, SalvageReport& report);

}  // namespace hako::table
