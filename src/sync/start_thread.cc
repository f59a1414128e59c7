#include "hako/sync/start_thread.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hako::sync {

StatusOr<std::jthread> StartThread(std::function<void(std::stop_token)> work) {
  try {
    return std::jthread(std::move(work));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", error.what()));
  }
}

}  // namespace hako::sync
