// The inputs that a fuzz target begins with.
#pragma once

#include <zstd.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "fuzz/target.h"
#include "support/file_system.h"

namespace hako::fuzz {

inline std::filesystem::path FuzzFolder() { return std::filesystem::path(__FILE__).parent_path(); }

// The corpus of a target, and its golden files, by name.
inline std::map<std::string, std::string> InputsOf(const Target& target) {
  std::map<std::string, std::string> inputs;
  const std::filesystem::path corpus = FuzzFolder() / "corpus" / target.name;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(corpus, none)) inputs[entry.path().filename()] = ReadWhole(entry.path());
  for (const std::string& name : target.golden) {
    const std::string packed = ReadWhole(FuzzFolder().parent_path() / "dbm/golden" / (name + ".zst"));
    std::string file(static_cast<std::size_t>(ZSTD_getFrameContentSize(packed.data(), packed.size())), '\0');
    Require(ZSTD_decompress(file.data(), file.size(), packed.data(), packed.size()) == file.size(), name);
    inputs["golden " + name] = target.input_of(file);
  }
  return inputs;
}

// Makes the seeds again.
inline void WriteSeeds(const Target& target) {
  const std::filesystem::path corpus = FuzzFolder() / "corpus" / target.name;
  std::filesystem::create_directories(corpus);
  int number = 0;
  for (const std::string& seed : target.make_seeds()) WriteWhole(corpus / absl::StrCat("seed_", number++), seed);
}

}  // namespace hako::fuzz
