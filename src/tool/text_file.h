// The texts that import reads and export writes: a named file, or a standard stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/file/replace_file.h"
#include "tool/interrupt.h"

namespace hako::tool {

inline bool IsStandardStream(std::string_view path) { return path.empty() || path == "-"; }

// Whether both names lead to the same file.
bool IsSameFile(const std::string& a, const std::string& b);

// Whether the first bytes of the file show that it is a database or a snapshot. Returns false if
// the file cannot be read.
bool HoldsDatabase(const std::string& path);
// Whether the name has the suffix of a database.
bool IsNamedAsDatabase(std::string_view path);

// Calls Fail for a text file, with its own advice for an absent file.
int FailText(const std::string& name, const Status& status);

class TextInput {
 public:
  TextInput() = default;
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;
  ~TextInput();

  Status Open(const std::string& path);
  // Cancelled once a signal has arrived.
  StatusOr<std::size_t> Read(const Interrupt& interrupt, std::span<char> buffer) const;
  // Returns the number of bytes left in a regular file, for the progress of an import; 0 = unknown.
  std::uint64_t Remaining() const;
  const std::string& name() const { return name_; }

 private:
  int fd_ = -1;
  std::string name_;
};

// A text that export writes. A file appears whole and synced at Commit, or not at all
// (file/replace_file.h). Pipes and devices are written directly.
class TextOutput {
 public:
  TextOutput() = default;
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;
  ~TextOutput();

  Status Open(const std::string& path);
  // Cancelled once a signal has arrived.
  Status Write(const Interrupt& interrupt, std::string_view bytes);
  Status Commit();
  // Whether the text appears only at Commit.
  bool is_replacement() const { return replacement_.has_value(); }
  const std::string& name() const { return name_; }

 private:
  int fd_ = -1;
  std::optional<FileReplacement> replacement_;
  std::string name_;
};

}  // namespace hako::tool
