// Mutants of a file set: changes of numbers, lines and sizes, after which most checks are right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/file_set.h"
#include "fuzz/forged_checks.h"
#include "support/forged_fields.h"
#include "support/random.h"

namespace hako::fuzz {

// Lines of a file that are not zero: those of superblocks and headers count four times.
inline std::vector<std::size_t> LinesInUse(const std::string& file) {
  constexpr std::size_t kSize = FileSet::kLine, kHeads = 512;
  std::vector<std::size_t> lines;
  for (std::size_t at = 0; at + kSize <= file.size(); at += kSize) {
    if (FileSet::IsZero(file, at)) continue;
    const bool is_head = at < kHeads || (at >= storage::kSlotDistance && at < storage::kSlotDistance + kHeads) ||
                         (at >= format::kLiveStateOffset && at < format::kLiveStateOffset + kHeads);
    lines.insert(lines.end(), is_head ? 4 : 1, at);
  }
  return lines;
}

inline void MutateFile(std::string& file, Random& random) {
  constexpr std::size_t kSize = FileSet::kLine;
  const std::vector<std::size_t> lines = LinesInUse(file);
  if (lines.empty() || random.OneIn(20)) {
    const std::size_t sizes[] = {0, 1, 64, 512, 4096, 16 << 10, 64 << 10};
    const std::size_t size = random.OneIn(2) ? random.Below(FileSet::kSizeMax) : file.size() + sizes[random.Below(7)];
    return file.resize(random.OneIn(2) ? random.Below(file.size() + 1) : size % (FileSet::kSizeMax + 1));
  }
  const auto any_line = [&] { return random.OneIn(10) ? random.Below(file.size() / kSize) * kSize : lines[random.Below(lines.size())]; };
  switch (random.Below(8)) {
    case 0:
      file.replace(any_line(), kSize, file.substr(any_line(), kSize));
      break;
    case 1:
      file.replace(any_line(), kSize, random.OneIn(2) ? std::string(kSize, '\0') : random.Bytes(kSize));
      break;
    case 2: {  // bytes of a line go to another place of it
      std::string line = file.substr(any_line(), kSize);
      MutateBytes(line, random);
      line.resize(kSize);
      file.replace(any_line(), kSize, line);
      break;
    }
    default: {
      std::vector<ForgedField> fields;
      const std::size_t first = any_line();
      for (int i = 0; i < 4; ++i) {
        const unsigned size = 1u << random.Below(4);
        fields.push_back({(random.OneIn(2) ? first : any_line()) + random.Below(kSize / size) * size, size});
      }
      ForgeFields(std::as_writable_bytes(std::span(file)), fields, random);
    }
  }
}

// The second file, if there is one, is the log of the first.
inline void MutateFiles(std::string& input, Random& random) {
  FileSet set = FileSet::Decode(input);
  if (set.files.empty()) set.files.emplace_back();
  if (random.OneIn(8)) set.mode = static_cast<unsigned>(random.Below(256));
  std::string& database = set.files[0];
  const ForgedHash hash(database);
  std::optional<ForgedLog> log;
  if (set.files.size() > 1) log.emplace(set.files[1], LogSecretOf(database));
  for (std::uint64_t step = random.Between(1, 3); step > 0; --step) MutateFile(set.files[random.Below(set.files.size())], random);
  if (!random.OneIn(8)) {
    hash.Fix(database);
    ForgedTree::Fix(database);
    ForgedSnapshot::Fix(database);
    if (log) log->Fix(set.files[1], LogSecretOf(database));
  }
  input = set.Encode();
}

}  // namespace hako::fuzz
