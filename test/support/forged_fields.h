// Changes of numbers in a file's image, whose checks are recomputed afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "support/random.h"

namespace hako {

// A little-endian number of up to 8 bytes.
struct ForgedField {
  std::size_t at;
  unsigned size;

  std::uint64_t Load(std::span<const std::byte> image) const {
    std::uint64_t value = 0;
    std::memcpy(&value, image.data() + at, size);
    return value;
  }
  void Store(std::span<std::byte> image, std::uint64_t value) const { std::memcpy(image.data() + at, &value, size); }
};

// Changes some of the fields and returns a description. A field may get what another loses, so that
// sums stay right.
inline std::string ForgeFields(std::span<std::byte> image, std::span<const ForgedField> fields, Random& random) {
  std::string done;
  for (std::uint64_t step = random.Between(1, 3); step > 0; --step) {
    const ForgedField field = fields[random.Below(fields.size())], other = fields[random.Below(fields.size())];
    const std::uint64_t before = field.Load(image), all = field.size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * field.size) - 1;
    std::uint64_t value = 0;
    switch (random.Below(8)) {
      case 0:
        value = 0;
        break;
      case 1:
        value = all;
        break;
      case 2:
        value = random.Next() & all;
        break;
      case 3:
        value = before + random.Between(1, 4);
        break;
      case 4:
        value = before - random.Between(1, 4);
        break;
      case 5:
        value = other.Load(image);
        break;
      case 6:
        value = before ^ std::uint64_t{1} << random.Below(8 * field.size);
        break;
      default: {
        const std::uint64_t moved = random.OneIn(2) ? other.Load(image) : random.Below(20);
        other.Store(image, other.Load(image) - moved);
        value = field.Load(image) + moved;
      }
    }
    field.Store(image, value & all);
    absl::StrAppend(&done, done.empty() ? "" : ", ", field.size, " bytes at ", field.at, ": ", before, " -> ", value & all);
  }
  return done;
}

}  // namespace hako
