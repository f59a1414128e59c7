// TreeDBM on a file that is read and written by position, compiled in the library. A program that
// includes this header beside dbm/tree_dbm.h does not compile it again.
#pragma once

#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

HAKO_TREE_DBM_TEMPLATES(extern, PositionalParallelFile);

}  // namespace hako
