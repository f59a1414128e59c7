// The files of an open database as a kill would leave them.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "support/file_system.h"

namespace hako {

// Copies a database and its log as they are at one moment, though a thread of the database may write
// or replace them meanwhile: again until neither has changed since it was copied.
inline void CopyAsKilled(const std::string& from, const std::string& to) {
  const std::string endings[] = {"", "-log"};
  std::error_code ignored;  // the log may go just now
  for (bool is_same = false; !is_same;) {
    for (const std::string& ending : endings) {
      std::filesystem::remove(to + ending, ignored);
      std::filesystem::copy_file(from + ending, to + ending, ignored);
    }
    is_same = true;
    for (const std::string& ending : endings) {
      is_same = is_same && std::filesystem::exists(from + ending) == std::filesystem::exists(to + ending) &&
                ReadWhole(from + ending) == ReadWhole(to + ending);
    }
  }
}

}  // namespace hako
