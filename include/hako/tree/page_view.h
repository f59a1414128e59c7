// A page as its line describes it at one moment: search, and access to its parts.
//
// Every function may run without a lock, beside a writer of the page. It may then see garbage, but
// it terminates and reads only readable memory. The result counts only if the line's version is
// unchanged.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "hako/base/comparator.h"
#include "hako/base/endian.h"
#include "hako/base/inline.h"
#include "hako/base/prefetch.h"
#include "hako/format/page_format.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/tree/key_buffer.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hako::tree {

// Returns how many of the kNumbers (16 or 12) sorted numbers are below `bound`. It has no branches
// that could be mispredicted (format/page_format.h, invariant 2).
template <unsigned kNumbers>
HAKO_INLINE unsigned CountBelow(const std::int32_t* shared, std::int32_t bound) {
#ifdef HAKO_TSAN
  std::int32_t copy[kNumbers];
  sync::LoadShared(reinterpret_cast<char*>(copy), reinterpret_cast<const char*>(shared), sizeof(copy));
  shared = copy;
#endif
#if defined(__AVX512F__) && defined(__AVX512VL__)
  const __mmask16 wanted = static_cast<__mmask16>((1u << kNumbers) - 1);
  const __m512i numbers = _mm512_maskz_loadu_epi32(wanted, shared);
  return static_cast<unsigned>(__builtin_popcount(_mm512_mask_cmplt_epi32_mask(wanted, numbers, _mm512_set1_epi32(bound))));
#elif defined(__AVX2__)
  const auto eight = [=](unsigned at) {
    const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(shared + at));
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(bound), numbers))));
  };
  // For twelve numbers, the last eight overlap the first eight by four, which are the lower half of
  // the last eight.
  const unsigned last = kNumbers - 8;
  return static_cast<unsigned>(__builtin_popcount(eight(0) | eight(last) << last));
#elif defined(__SSE2__)
  const __m128i bounds = _mm_set1_epi32(bound);
  const auto four = [=](unsigned at) { return _mm_cmpgt_epi32(bounds, _mm_load_si128(reinterpret_cast<const __m128i*>(shared + at))); };
  const __m128i last = kNumbers == 16 ? four(kNumbers - 4) : _mm_setzero_si128();
  const __m128i below = _mm_packs_epi16(_mm_packs_epi32(four(0), four(4)), _mm_packs_epi32(four(8), last));
  // The numbers are sorted, so the bits of those below come first.
  return static_cast<unsigned>(__builtin_ctz(~static_cast<unsigned>(_mm_movemask_epi8(below))));
#else
  using Lanes [[gnu::vector_size(16)]] = std::int32_t;
  Lanes below = {};
  for (unsigned at = 0; at < kNumbers; at += 4) {
    Lanes numbers;
    std::memcpy(&numbers, shared + at, sizeof(numbers));
    below += numbers < bound;  // each lane is 0 or -1
  }
  return static_cast<unsigned>(-(below[0] + below[1] + below[2] + below[3]));
#endif
}

template <Comparator Compare>
class PageView {
 public:
  using Line = format::PageLine;
  using Shape = format::PageShape;
  static constexpr bool kBytewise = BytewiseOrder<Compare>;
  static constexpr unsigned kInlined = kBytewise ? 4 : 0;  // bytes of a suffix that the head holds

  struct Slot {
    unsigned index;  // of the first slot whose key is not below the key sought
    bool found;      // whether that slot has the key
  };
  struct Place : Slot {
    const char* cell;  // the slot's cell, if found
    format::Cell sizes;
  };

  PageView() = default;
  // `memory` is the address of unit 0.
  HAKO_INLINE PageView(char* memory, Line& line)
      : PageView(line, memory + std::uint64_t{std::atomic_ref(line.unit).load(std::memory_order_relaxed)} * format::kPageUnit) {}
  HAKO_INLINE PageView(Line& line, char* base) : base_(base), line_(&line) {}

  // The shape as the line has it now.
  Shape shape() const { return std::atomic_ref(line_->shape).load(std::memory_order_relaxed); }
  HAKO_INLINE unsigned count() const { return Load(line_->shape.count); }
  HAKO_INLINE unsigned level() const { return Load(line_->shape.kind) & Shape::kLevel; }
  HAKO_INLINE bool guarded() const { return (Load(line_->shape.kind) & Shape::kGuarded) != 0; }
  HAKO_INLINE unsigned prefix_size() const { return Load(line_->shape.prefix); }
  char* base() const { return base_; }
  HAKO_INLINE char* end() const { return base_ + Load(line_->shape.units) * format::kPageUnit; }

  HAKO_INLINE std::int32_t* heads() const { return reinterpret_cast<std::int32_t*>(base_); }
  // REQUIRES: the page is a leaf (unchecked, here and below: without the lock the page may have
  // been replaced)
  HAKO_INLINE std::uint16_t* leaf_offsets() const {
    return reinterpret_cast<std::uint16_t*>(base_ + Load(line_->shape.groups) * format::kSlotGroup * sizeof(std::int32_t));
  }
  HAKO_INLINE std::uint32_t* children() const {
    return reinterpret_cast<std::uint32_t*>(base_ + format::kPageSlotsMax * sizeof(std::int32_t));
  }
  HAKO_INLINE std::uint16_t* offsets() const {
    if (level() == 0) return leaf_offsets();
    return reinterpret_cast<std::uint16_t*>(base_ + format::kPageSlotsMax * (sizeof(std::int32_t) + sizeof(std::uint32_t)));
  }
  HAKO_INLINE std::int32_t head(unsigned i) const { return Load(heads()[i]); }
  HAKO_INLINE unsigned offset(unsigned i) const { return Load(offsets()[i]); }
  HAKO_INLINE std::uint32_t child(unsigned i) const { return Load(children()[i & 0xff]); }
  HAKO_INLINE const char* cell(unsigned i) const { return end() - offset(i); }
  HAKO_INLINE static format::Cell Decode(const char* cell) { return format::Cell::Decode(sync::LoadSharedWord(cell)); }

  // The head of a key in a page with this prefix.
  HAKO_INLINE static std::int32_t HeadOf(std::string_view key, std::size_t prefix) {
    if constexpr (kBytewise) {
      return static_cast<std::int32_t>(FourBytes(key, prefix) ^ 0x80000000u);
    } else if constexpr (requires { Compare::Head(key); }) {
      return static_cast<std::int32_t>(Compare::Head(key) ^ 0x80000000u);
    } else {
      return 0;
    }
  }

  static constexpr format::PageOrder kOrder{kInlined, &Compare::Compare, [](std::string_view key) { return HeadOf(key, 0); }};

  // Returns the first slot whose key is not below `key`, and its cell if it has the key. A reader
  // without the lock may get a cell outside the page. REQUIRES: leaf (unchecked)
  HAKO_INLINE Place Find(std::string_view key) const {
    Place place{{0, false}, nullptr, {}};
    if (guarded()) [[unlikely]] {
      if (const int side = SideOf(key); side != 0) {
        if (side > 0) place.index = count();
        return place;
      }
    }
    const std::int32_t sought = HeadOf(key, prefix_size());
    const unsigned group = GroupOf(sought);
    hako::Prefetch(leaf_offsets() + group);  // beside the heads of the group
    place.index = group + CountBelow<format::kSlotGroup>(heads() + group, sought);
    place.cell = end() - Load(leaf_offsets()[place.index]);  // without meaning if there is no such slot
    if (head(place.index) != sought || place.index >= count()) return place;
    place.sizes = Decode(place.cell);
    place.found = IsKey(place.cell, place.sizes, key);
    if (!place.found) [[unlikely]] {
      static_cast<Slot&>(place) = FirstTied(*this, place.index, sought, key);
      if (!place.found) return place;
      place.cell = cell(place.index);
      place.sizes = Decode(place.cell);
    }
    return place;
  }

  // The slot whose child's range contains `key`. REQUIRES: inner page (unchecked)
  HAKO_INLINE unsigned ChildFor(std::string_view key) const {
    if (guarded()) [[unlikely]] {
      if (const int side = SideOf(key); side != 0) return side < 0 ? 0 : count() - 1;
    }
    const std::int32_t sought = HeadOf(key, prefix_size());
    const unsigned i = FirstNotBelow(sought);
    if (head(i) != sought || i >= count()) [[likely]]
      return i - 1;
    const Slot tied = FirstTied(*this, std::max(i, 1u), sought, key);
    return tied.found ? tied.index : tied.index - 1;
  }
  // As Find and ChildFor, for rare paths: compiled once.
  [[gnu::noinline]] Place FindByCall(std::string_view key) const { return Find(key); }
  [[gnu::noinline]] unsigned ChildForByCall(std::string_view key) const { return ChildFor(key); }
  // PrefetchSlots prefetches the slots that a search for `key` will read; PrefetchCell, in a leaf,
  // the cell that it will find.
  HAKO_INLINE void PrefetchSlots(std::string_view key) const {
    const unsigned at = GroupOf(HeadOf(key, prefix_size()));
    hako::Prefetch(heads() + at);
    if (level() == 0)
      hako::Prefetch(leaf_offsets() + at);
    else
      hako::Prefetch(children() + at);
  }
  HAKO_INLINE void PrefetchCell(std::string_view key) const {
    const char* const cell = end() - Load(leaf_offsets()[FirstNotBelow(HeadOf(key, prefix_size()))]);
    hako::Prefetch(cell);
    hako::Prefetch(cell + 63);
    hako::Prefetch(cell + 127);
  }

  // The slot of the child that has the greatest key below `key`. REQUIRES: inner page (unchecked)
  unsigned ChildBefore(std::string_view key) const {
    const unsigned i = ChildForByCall(key);
    // The index is past the slots if a writer interfered.
    if (i == 0 || i >= format::kPageSlotsMax || (guarded() && SideOf(key) != 0)) return i;
    return head(i) == HeadOf(key, prefix_size()) && Order(i, key) == 0 ? i - 1 : i;
  }

  // The parts at the end of the page.
  format::PageTail tail() const {
    format::PageTail tail;
    sync::LoadShared(reinterpret_cast<char*>(&tail), end() - sizeof(tail), sizeof(tail));
    return tail;
  }
  HAKO_INLINE std::string_view prefix() const {
    const unsigned size = prefix_size();
    return {end() - sizeof(format::PageTail) - size, size};
  }
  std::string_view low(const format::PageTail& tail) const { return {prefix().data() - tail.low, tail.low}; }
  std::string_view high(const format::PageTail& tail) const { return {prefix().data() - tail.low - tail.high, tail.high}; }

  // Compares the key of slot i with a key that has the same head: less than, equal to or greater
  // than 0.
  HAKO_INLINE int Order(unsigned i, std::string_view key) const {
    const char* const cell = this->cell(i);
    const format::Cell sizes = Decode(cell);
    if constexpr (kBytewise) {
      const std::size_t prefix = prefix_size(), suffix = SuffixSize(key, prefix);
      if (std::min<std::size_t>(sizes.suffix, suffix) > kInlined) {
        const char* const rest = key.data() + prefix + kInlined;
        const std::size_t n = std::min<std::size_t>(sizes.suffix, suffix) - kInlined;
        if (const int order = CompareWords(cell + sizes.header, rest, n); order != 0) return order;
      }
      return static_cast<int>(sizes.suffix) - static_cast<int>(suffix);
    } else {
      KeyBuffer copy;  // a comparator must not see bytes that change
      copy.LoadShared(cell + sizes.header, sizes.suffix);
      return Compare::Compare(copy, key);
    }
  }

  // Whether a cell belongs to `key`, which has the same head.
  HAKO_INLINE bool IsKey(const char* cell, const format::Cell& sizes, std::string_view key) const {
    if constexpr (kBytewise) {
      const std::size_t prefix = prefix_size(), suffix = SuffixSize(key, prefix);
      if (sizes.suffix != suffix) return false;
      return suffix <= kInlined || sync::EqualShared(cell + sizes.header, key.data() + prefix + kInlined, suffix - kInlined);
    } else {
      return false;  // FirstTied asks the comparator
    }
  }

  // Returns -1 or 1 if `key` lacks the page's prefix and so is below or above all keys with the
  // prefix, else 0.
  HAKO_INLINE int SideOf(std::string_view key) const {
    const std::string_view prefix = this->prefix();
    if (prefix.empty()) return 0;
    if (key.size() >= prefix.size() && sync::EqualShared(prefix.data(), key.data(), prefix.size())) [[likely]]
      return 0;
    return SideOfOther(prefix, key);
  }
  [[gnu::noinline]] static int SideOfOther(std::string_view prefix, std::string_view key) {
    const int order = CompareShared(prefix.data(), key.data(), std::min(prefix.size(), key.size()));
    return order != 0 ? (order < 0 ? 1 : -1) : key.size() < prefix.size() ? -1 : 0;
  }

  // Writes the key of slot i to `out`, which has room for it and begins with the page's prefix
  // already. Returns the key's size. REQUIRES: not slot 0 of an inner page (unchecked)
  HAKO_INLINE std::size_t CopyKeyAfterPrefix(unsigned i, const char* cell, const format::Cell& sizes, char* out) const {
    out += prefix_size();
    if constexpr (kBytewise) {
      const std::uint32_t head = __builtin_bswap32(static_cast<std::uint32_t>(this->head(i)) ^ 0x80000000u);
      std::memcpy(out, &head, sizeof(head));
    }
    sync::LoadShared(out + kInlined, cell + sizes.header, sizes.Rest(kInlined));
    return prefix_size() + sizes.suffix;
  }

 private:
  template <class T>
  HAKO_INLINE static T Load(T& shared) {
    return std::atomic_ref(shared).load(std::memory_order_relaxed);
  }
  // Returns 0 if the key is shorter than the prefix, which a reader without the lock may see. The
  // caller reads the prefix size only once, because it might change between this check and its use.
  HAKO_INLINE static std::size_t SuffixSize(std::string_view key, std::size_t prefix) {
    return key.size() > prefix ? key.size() - prefix : 0;
  }
  // Returns the first slot of the group with the first head that is not below this one.
  HAKO_INLINE unsigned GroupOf(std::int32_t sought) const {
    return CountBelow<format::kPageHints>(line_->hints, sought) * format::kSlotGroup;
  }
  HAKO_INLINE unsigned FirstNotBelow(std::int32_t sought) const {
    const unsigned group = GroupOf(sought);
    return group + CountBelow<format::kSlotGroup>(heads() + group, sought);
  }

  // Returns the first slot whose key is not below `key`, among the slots from `first` on that have
  // this head, or the slot after these. Static, so that the views of its callers stay in registers.
  [[gnu::noinline]] static Slot FirstTied(PageView page, unsigned first, std::int32_t sought, std::string_view key) {
    unsigned end = sought == format::kNoHead ? page.count() : std::min(page.FirstNotBelow(sought + 1), page.count());
    const unsigned last = end;
    while (first < end) {
      const unsigned middle = (first + end) / 2;
      if (page.Order(middle, key) < 0)
        first = middle + 1;
      else
        end = middle;
    }
    return {first, first < last && page.Order(first, key) == 0};
  }

  HAKO_INLINE static std::uint32_t FourBytes(std::string_view key, std::size_t at) {
    if (at + 4 <= key.size()) [[likely]]
      return LoadWord(key.data() + at);
    if (at >= key.size()) return 0;
    const auto missing = static_cast<unsigned>(at + 4 - key.size());
    if (key.size() >= 4) return LoadWord(key.data() + key.size() - 4) << 8 * missing;
    std::uint32_t word = 0;
    for (std::size_t i = at; i < at + 4; ++i) word = word << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0u);
    return word;
  }
  HAKO_INLINE static std::uint32_t LoadWord(const char* bytes) {
    std::uint32_t word;
    std::memcpy(&word, bytes, sizeof(word));
    return __builtin_bswap32(word);
  }
  // As above, but inlined: compares the rest of two keys that have the same head. The rest is
  // short.
  HAKO_INLINE static int CompareWords(const char* shared, const char* bytes, std::size_t size) {
    for (; size >= sizeof(std::uint64_t); shared += 8, bytes += 8, size -= 8) {
      const std::uint64_t a = __builtin_bswap64(sync::LoadSharedWord(shared)), b = LoadBigEndian(bytes);
      if (a != b) return a < b ? -1 : 1;
    }
    return CompareShared(shared, bytes, size);
  }
  static int CompareShared(const char* shared, const char* bytes, std::size_t size) {
#ifdef HAKO_TSAN
    KeyBuffer copy;
    copy.LoadShared(shared, size);
    return size == 0 ? 0 : std::memcmp(copy.data(), bytes, size);
#else
    return size == 0 ? 0 : std::memcmp(shared, bytes, size);
#endif
  }

  char* base_ = nullptr;
  Line* line_ = nullptr;
};

// A locked page, which stays readable after its line was changed to name other memory.
template <Comparator Compare>
class PageSnapshot {
 public:
  PageSnapshot(char* memory, format::PageLine& line) : base_(memory + std::uint64_t{line.unit} * format::kPageUnit), unit_(line.unit) {
    line_.shape = line.shape;
  }
  PageSnapshot(const PageSnapshot&) = delete;

  PageView<Compare> view() { return PageView<Compare>(line_, base_); }
  std::uint32_t unit() const { return unit_; }
  unsigned units() const { return line_.shape.units; }

 private:
  format::PageLine line_{};
  char* base_;
  std::uint32_t unit_;
};

}  // namespace hako::tree
