// LZ4 for the pages of a TreeDBM (base/page_codec.h): fast in both directions. Programs that
// include this header link with liblz4.
#pragma once

#include <lz4.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "hako/base/page_codec.h"

namespace hako {

// Models PageCodec.
struct Lz4Codec {
  // See PageCodec.
  static constexpr std::string_view kName = "lz4";
  static std::size_t Compress(std::span<const char> in, std::span<char> out) {
    const int size = LZ4_compress_default(in.data(), out.data(), static_cast<int>(in.size()), static_cast<int>(out.size()));
    return size > 0 && static_cast<std::size_t>(size) < out.size() ? static_cast<std::size_t>(size) : 0;
  }
  static bool Decompress(std::span<const char> in, std::span<char> out) {
    const int size = LZ4_decompress_safe(in.data(), out.data(), static_cast<int>(in.size()), static_cast<int>(out.size()));
    return size >= 0 && static_cast<std::size_t>(size) == out.size();
  }
};
static_assert(PageCodec<Lz4Codec>);

}  // namespace hako
