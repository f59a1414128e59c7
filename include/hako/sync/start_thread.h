// Starts a thread without exceptions. The definition is in the library, so that programs compiled
// without exceptions can use it.
#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "hako/base/status.h"

namespace hako::sync {

// Returns ResourceExhausted if the system has no thread.
StatusOr<std::jthread> StartThread(std::function<void(std::stop_token)> work);

}  // namespace hako::sync
