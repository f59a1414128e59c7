// The salvage of a table (TableDBM::Salvage): puts the records in order that were rescued from its tree.
//
// Only the catalogue and the rows are kept. What follows from them is rebuilt: the entries of the indices, and the number
// of rows. A column whose record is lost, and of which rows have cells, gets the name lost_column_NUMBER, so that no
// other column is given its number. An index is dropped if its record is damaged, if a column of it is lost, or if it is
// unique and two rows have the same value.
#pragma once

#include <memory>

#include "hako/base/status.h"
#include "hako/storage/salvage_report.h"
#include "hako/table/table_store.h"

namespace hako::table {

// Completes the report, in which keys are those of rows from here on, and closes the store.
Status RepairSalvaged(std::unique_ptr<TableStore> store, SalvageReport& report);

}  // namespace hako::table
