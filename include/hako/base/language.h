// Every header of hako includes this one, directly or not, so that a compiler set to an older
// standard of C++ prints one error instead of thousands.
#pragma once

#if __cplusplus < 202002L
#include "hako requires C++20: compile with -std=c++20 or a later standard"
#endif
