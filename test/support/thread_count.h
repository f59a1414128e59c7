// How many threads this process has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>

#include "support/file_system.h"

namespace hako {

// Without those that are ending: one that was joined is listed for a little longer.
inline std::uint64_t NumThreads() {
  constexpr std::uint64_t kIsExiting = 4;  // PF_EXITING of the kernel
  std::uint64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string text = ReadWhole(entry.path() / "stat");  // "" once it has ended
    if (text.empty()) continue;
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string state, number;
    std::uint64_t flags = 0;
    fields >> state;
    for (int i = 0; i < 5; ++i) fields >> number;  // parent, group, session, terminal, its group
    fields >> flags;
    count += (flags & kIsExiting) == 0 ? 1u : 0u;
  }
  return count;
}

}  // namespace hako
