// The files of a database as an input of a fuzz target: the file, and its log if there is one.
//
// An input is a byte that chooses how the target uses the files, then for each file its size and its
// lines of 64 bytes, except those that are zero. So it is short, and a change of it is rarely one of
// bytes that nothing reads. Any bytes are a file set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "hako/base/endian.h"

namespace hako::fuzz {

struct FileSet {
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kSizeMax = 1 << 20;  // of a file
  static constexpr std::size_t kFilesMax = 2;

  unsigned mode = 0;
  std::vector<std::string> files;

  // Whether the line at `at` is zero.
  static bool IsZero(std::string_view file, std::size_t at) {
    static constexpr char kZeros[kLine] = {};
    return std::memcmp(file.data() + at, kZeros, std::min(kLine, file.size() - at)) == 0;
  }
  static FileSet Decode(std::string_view input) {
    Bytes bytes(input);
    FileSet set;
    set.mode = bytes.Byte();
    while (!bytes.empty() && set.files.size() < kFilesMax) {
      std::string& file = set.files.emplace_back(TakeNumber<std::uint32_t>(bytes) % (kSizeMax + 1), '\0');
      for (unsigned count = TakeNumber<std::uint16_t>(bytes); count > 0 && !bytes.empty(); --count) {
        const std::size_t at = TakeNumber<std::uint16_t>(bytes) * kLine;
        const std::string_view line = bytes.Take(kLine);
        if (at < file.size()) line.copy(file.data() + at, std::min(line.size(), file.size() - at));
      }
    }
    return set;
  }
  std::string Encode() const {
    std::string input(1, static_cast<char>(mode));
    for (const std::string& file : files) {
      AddNumber<std::uint32_t>(file.size(), &input);
      const std::size_t count_at = input.size();
      std::uint64_t count = 0;
      AddNumber<std::uint16_t>(0, &input);
      for (std::size_t at = 0; at < file.size(); at += kLine) {
        if (IsZero(file, at)) continue;
        std::string line = file.substr(at, kLine);
        line.resize(kLine);
        AddNumber<std::uint16_t>(at / kLine, &input);
        input += line;
        ++count;
      }
      const Le<std::uint16_t> number = static_cast<std::uint16_t>(count);
      std::memcpy(&input[count_at], &number, sizeof(number));
    }
    return input;
  }

 private:
  template <class T>
  static T TakeNumber(Bytes& bytes) {
    Le<T> number = 0;
    const std::string_view taken = bytes.Take(sizeof(T));
    std::memcpy(static_cast<void*>(&number), taken.data(), taken.size());
    return number;
  }
  template <class T>
  static void AddNumber(std::uint64_t value, std::string* out) {
    const Le<T> number = static_cast<T>(value);
    out->append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
};

}  // namespace hako::fuzz
