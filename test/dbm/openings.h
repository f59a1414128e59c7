// Shared by the tests of openings that fail: kinds of databases, their options, and child processes.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/dbm/any_options.h"
#include "support/temp_dir.h"

namespace hako {

namespace fs = std::filesystem;

inline constexpr unsigned kWidth = 16;

struct Kind {
  std::string_view name, kind, device;
  bool IsMappedHash() const { return kind == AnyOptions::kHash && device == "mmap"; }
  bool IsArray() const { return kind == AnyOptions::kArray; }
  bool IsInMemory() const { return kind == AnyOptions::kTiny || kind == AnyOptions::kBaby; }
  bool HasExpiry() const { return !IsArray(); }
  bool HasInterval() const { return !IsInMemory(); }  // of synchronizations
};
inline constexpr std::array kKinds = {Kind{"mapped hash", AnyOptions::kHash, "mmap"}, Kind{"positional hash", AnyOptions::kHash, "pos"},
                                      Kind{"tree", AnyOptions::kTree, "mmap"},        Kind{"positional tree", AnyOptions::kTree, "pos"},
                                      Kind{"array", AnyOptions::kArray, "mmap"},      Kind{"tiny", AnyOptions::kTiny, "mmap"},
                                      Kind{"baby", AnyOptions::kBaby, "mmap"}};

// A kind of database, with the options that it was created with.
struct Base {
  Kind kind;
  Durability level = Durability::kProcess;
  bool has_archive = false, expires = false, keeps_log = false;

  bool HasLog() const {
    return level == Durability::kPower || (level == Durability::kProcess && (!kind.IsMappedHash() || has_archive || keeps_log));
  }
};

// The options that it is opened with, as the file `db` of the directory.
inline AnyOptions OptionsOf(const Base& base, const TempDir& directory) {
  AnyOptions options;
  options.path = directory.File("db");
  options.kind = base.kind.kind;
  options.device = base.kind.device;
  options.durability = base.level;
  options.keep_log = base.keeps_log;
  options.expiry = base.expires;
  if (base.has_archive) options.log_archive = directory.File("archive");
  if (base.kind.IsArray()) options.width = kWidth;
  if (base.kind.kind == AnyOptions::kTree || base.kind.IsArray()) options.cache_bytes = 1 << 20;
  if (base.kind.kind == AnyOptions::kBaby) options.max_bytes = 16 << 20;
  options.file.reserve_bytes = 64 << 20;
  return options;
}

enum class Left { kAbsent, kEmpty, kZeros, kBegun, kClosed, kKilled, kCut };

// The names of all files in a directory and those below it.
inline std::set<std::string> NamesBelow(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) names.insert(entry.path().string().substr(directory.size() + 1));
  return names;
}

inline constexpr int kFailed = 3, kOpened = 4, kThrew = 5;

// How a child process has ended: the result of body(), and the text that this has passed on.
struct Outcome {
  bool is_killed = false;
  int result = 0;
  std::string said;
};
// Runs body(say) in a child process.
template <class Body>
Outcome RunProcess(Body body) {
  constexpr std::size_t kSize = 4096;
  static char* const shared = static_cast<char*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::memset(shared, 0, kSize);
  const pid_t child = fork();
  HAKO_ASSERT(child >= 0);
  if (child == 0) {
    alarm(60);
    try {
      _exit(body([](std::string_view text) { std::memcpy(shared, text.data(), std::min(text.size(), kSize - 1)); }));
    } catch (...) {
      _exit(kThrew);
    }
  }
  int status = 0;
  HAKO_ASSERT(waitpid(child, &status, 0) == child);
  Outcome outcome{.said = shared};
  outcome.is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  outcome.result = WIFEXITED(status) ? WEXITSTATUS(status) : outcome.is_killed ? 0 : -WTERMSIG(status);
  return outcome;
}

}  // namespace hako
