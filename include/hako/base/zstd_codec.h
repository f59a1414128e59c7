// Zstandard for the pages of a TreeDBM (base/page_codec.h): smaller than LZ4, slower. Programs that include this link with libzstd.
#pragma once

#include <zstd.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "hako/base/page_codec.h"

namespace hako {

template <int kLevel = 1>
struct ZstdCodec {
  static constexpr std::string_view kName = "zstd";  // whatever the level, all read all
  static std::size_t Compress(std::span<const char> in, std::span<char> out) {
    static thread_local const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
    if (context == nullptr) return 0;
    const std::size_t size = ZSTD_compressCCtx(context.get(), out.data(), out.size(), in.data(), in.size(), kLevel);
    return ZSTD_isError(size) == 0 && size < out.size() ? size : 0;
  }
  static bool Decompress(std::span<const char> in, std::span<char> out) {
    static thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
    return context != nullptr && ZSTD_decompressDCtx(context.get(), out.data(), out.size(), in.data(), in.size()) == out.size();
  }
};
static_assert(PageCodec<ZstdCodec<>>);

}  // namespace hako
