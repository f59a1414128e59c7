// Zstandard for the pages of a TreeDBM (base/page_codec.h): compresses better than LZ4, but is
// slower. Programs that include this header link with libzstd.
#pragma once

#include <zstd.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "hako/base/page_codec.h"
#include "hako/base/thread_exit.h"

namespace hako {

// Models PageCodec, with this compression level.
template <int kLevel = 1>
struct ZstdCodec {
  static constexpr std::string_view kName = "zstd";  // the same for all levels: each reads the others' pages
  // See PageCodec.
  static std::size_t Compress(std::span<const char> in, std::span<char> out) {
    if (compressor_ == nullptr) compressor_ = ZSTD_createCCtx();
    if (compressor_ == nullptr) return 0;
    (void)at_exit_.Arm();
    const std::size_t size = ZSTD_compressCCtx(compressor_, out.data(), out.size(), in.data(), in.size(), kLevel);
    return ZSTD_isError(size) == 0 && size < out.size() ? size : 0;
  }
  static bool Decompress(std::span<const char> in, std::span<char> out) {
    if (decompressor_ == nullptr) decompressor_ = ZSTD_createDCtx();
    if (decompressor_ == nullptr) return false;
    (void)at_exit_.Arm();
    return ZSTD_decompressDCtx(decompressor_, out.data(), out.size(), in.data(), in.size()) == out.size();
  }

 private:
  static void Free() {
    ZSTD_freeCCtx(std::exchange(compressor_, nullptr));
    ZSTD_freeDCtx(std::exchange(decompressor_, nullptr));
  }
  static inline constinit thread_local ZSTD_CCtx* compressor_ = nullptr;
  static inline constinit thread_local ZSTD_DCtx* decompressor_ = nullptr;
  static inline constinit thread_local ThreadExitCall at_exit_{&Free};
};
static_assert(PageCodec<ZstdCodec<>>);

}  // namespace hako
