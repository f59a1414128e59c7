// Every header of hako includes this one, directly or not: an older standard of C++ gives one error, and
// not thousands.
#pragma once

#if __cplusplus < 202002L
#include "hako requires C++20: compile with -std=c++20 or a later standard"
#endif
