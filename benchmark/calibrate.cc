// Measures the constants of this machine that bound a key-value engine, and computes from them how
// fast HashDBM could be at best.
//
//   calibrate [--json] [--dir=DIR]      about 15 s on one CPU; DIR: directory of the file for the file system's figures
//
// The model. One operation costs
//     T = c_cpu + sum over its dependent loads of t_level + t_rmw + faults * t_fault
// when it does not overlap with its neighbours ("alone"), and at least
//     T = max(c_cpu, sum over its lines of t_independent) + faults * t_fault
// when it does ("overlapped"). A Get takes no lock and overlaps as far as the processor's window
// reaches; a Set takes one locked instruction, which ends the overlap, so for it the first form
// holds. Lines touched, for records in random order: Get 1.05 bucket lines and 1.25 record lines (a
// 24-byte record straddles two lines one time in four); Set new a bucket line and bytes appended;
// Set existing both. In the order of storage the record lines are fetched ahead, and only the
// bucket counts.
//
// c_cpu is measured too: a Get as HashDBM does it (hash, tag probe, key compare, check, copy into a
// string) in a table that fits the first-level cache.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "workload.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace {

using hako::workload::Random;

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSizes[] = {1 * kMiB, 8 * kMiB, 32 * kMiB, 320 * kMiB};

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Keeps the compiler from dropping what leads to `value`.
template <class T>
void Use(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// The least of three runs of body(), in ns per operation: what disturbs a run only makes it longer.
double BestNs(double operations, const std::function<void()>& body) {
  double best = 1e300;
  for (int i = 0; i < 3; ++i) {
    const double start = Seconds();
    body();
    best = std::min(best, Seconds() - start);
  }
  return best * 1e9 / operations;
}

// Anonymous memory on 4 KiB or 2 MiB pages, aligned to 2 MiB; not touched yet.
class Memory {
 public:
  Memory(std::size_t size, bool huge) : reserved_(size + 2 * kMiB) {
    void* base = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) Die("mmap");
    base_ = static_cast<char*>(base);
    data_ = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(base) + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB));
    madvise(data_, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { munmap(base_, reserved_); }
  char* data() { return data_; }

 private:
  std::size_t reserved_;
  char* base_;
  char* data_;
};

struct Loads {
  double chase_4k = 0, chase_2m = 0, independent_4k = 0, independent_2m = 0;
};

// A random cycle through all lines (Sattolo), then as many loads whose addresses are known
// beforehand.
std::pair<double, double> MeasureLoads(std::size_t size, bool huge) {
  Memory memory(size, huge);
  const auto lines = static_cast<std::uint32_t>(size / kLine);
  char* const data = memory.data();
  const auto next = [data](std::uint32_t line) -> std::uint32_t& {
    return *reinterpret_cast<std::uint32_t*>(data + static_cast<std::size_t>(line) * kLine);
  };
  Random random(1);
  for (std::uint32_t i = 0; i < lines; ++i) next(i) = i;
  for (std::uint32_t i = lines - 1; i > 0; --i) std::swap(next(i), next(random.Below(i)));

  const std::uint32_t steps = std::min<std::uint32_t>(lines * 8, 1 << 20);
  std::uint32_t at = 0;
  const double chase = BestNs(steps, [&] {
    for (std::uint32_t i = 0; i < steps; ++i) at = next(at);
    Use(at);
  });
  std::vector<std::uint32_t> order(steps);
  for (std::uint32_t& line : order) line = random.Below(lines);
  const double independent = BestNs(steps, [&] {
    std::uint32_t sum = 0;
    for (std::uint32_t line : order) sum += next(line);
    Use(sum);
  });
  return {chase, independent};
}

struct Constants {
  Loads loads[std::size(kSizes)];
  double memcpy_gb_s = 0, stream_gb_s = 0, rmw = 0, syscall = 0, clock = 0, cpu_8 = 0, cpu_100 = 0;
  double fault_anonymous = 0, fault_file = 0, populate_file = 0, pwrite_4k = 0, fdatasync_us = 0;
};

void MeasureCopies(Constants& c) {
  constexpr std::size_t kSize = 64 * kMiB;
  Memory from(kSize, true), to(kSize, true);
  std::memset(from.data(), 1, kSize);
  std::memset(to.data(), 1, kSize);
  c.memcpy_gb_s = 1 / BestNs(kSize, [&] {
                    std::memcpy(to.data(), from.data(), kSize);
                    Use(to.data());
                  });
#if defined(__SSE2__)
  c.stream_gb_s = 1 / BestNs(kSize, [&] {
                    const __m128i word = _mm_set1_epi8(2);
                    for (std::size_t i = 0; i < kSize; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(to.data() + i), word);
                    _mm_sfence();
                  });
#endif
}

void MeasureInstructions(Constants& c) {
  constexpr int kTimes = 1 << 20;
  alignas(kLine) std::atomic<std::uint64_t> counter{0};
  c.rmw = BestNs(kTimes, [&] {
    for (int i = 0; i < kTimes; ++i) counter.fetch_add(1);
  });
  c.syscall = BestNs(kTimes, [] {
    for (int i = 0; i < kTimes; ++i) Use(syscall(SYS_getppid));
  });
  c.clock = BestNs(kTimes, [] {
    for (int i = 0; i < kTimes; ++i) Use(std::chrono::steady_clock::now());
  });
}

// A Get in miniature. Lines of 10 tags of 16 bits and 10 offsets; records of check, lengths, key,
// value.
class SmallTable {
 public:
  SmallTable(std::size_t key_size, std::size_t value_size, std::uint32_t records) : key_size_(key_size) {
    std::string key(key_size, '\0'), value(value_size, 'v');
    for (std::uint32_t id = 0; keys_.size() < records * key_size; ++id) {
      char bytes[16];
      hako::workload::WriteHashedKey(id, 1, bytes);
      key.assign(bytes, key_size);  // REQUIRES: no more than 16
      const std::uint64_t hash = Hash(key);
      Line& line = lines_[hash % kLines];
      const auto slot = std::find(std::begin(line.tags), std::begin(line.tags) + 10, 0) - std::begin(line.tags);
      if (slot == 10) continue;
      line.tags[slot] = Tag(hash);
      line.offsets[slot] = static_cast<std::uint32_t>(heap_.size());
      const std::uint32_t check = Check(hash, value);
      heap_.append(reinterpret_cast<const char*>(&check), 4);
      heap_ += {'\0', '\0', static_cast<char>(key_size), static_cast<char>(value_size)};
      heap_ += key + value;
      keys_ += key;
    }
  }

  bool Get(std::string_view key, std::string* value) const {
    const std::uint64_t hash = Hash(key);
    const Line& line = lines_[hash % kLines];
    for (unsigned mask = Match(line, Tag(hash)); mask != 0; mask &= mask - 1) {
      const char* record = heap_.data() + line.offsets[__builtin_ctz(mask)];
      const std::size_t key_size = static_cast<unsigned char>(record[6]), value_size = static_cast<unsigned char>(record[7]);
      if (key_size != key.size() || std::memcmp(record + 8, key.data(), key_size) != 0) continue;
      value->resize(value_size);
      std::memcpy(value->data(), record + 8 + key_size, value_size);
      std::uint32_t check;
      std::memcpy(&check, record, 4);
      return check == Check(hash, *value);
    }
    return false;
  }

  double Measure() const {
    constexpr std::size_t kRounds = 4000;
    const std::size_t records = keys_.size() / key_size_;
    std::string value;
    std::size_t found = 0;
    const double ns = BestNs(static_cast<double>(kRounds * records), [&] {
      for (std::size_t round = 0; round < kRounds; ++round)
        for (std::size_t i = 0; i < records; ++i) found += Get({keys_.data() + i * key_size_, key_size_}, &value);
    });
    if (found != 3 * kRounds * records) std::fputs("calibrate: the small table lost a record\n", stderr), std::exit(1);
    return ns;
  }

 private:
  static constexpr std::size_t kLines = 64;
  struct alignas(kLine) Line {
    std::uint16_t tags[10] = {};
    std::uint32_t offsets[10] = {};
  };

  static std::uint64_t Hash(std::string_view bytes) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), 7); }
  static std::uint32_t Check(std::uint64_t hash, std::string_view value) {
    return static_cast<std::uint32_t>(XXH3_64bits_withSeed(value.data(), value.size(), hash));
  }
  static std::uint16_t Tag(std::uint64_t hash) { return static_cast<std::uint16_t>((hash >> 48) | 1); }
  static unsigned Match(const Line& line, std::uint16_t tag) {
#if defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi16(static_cast<short>(tag));
    const __m128i low = _mm_cmpeq_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line.tags)), wanted);
    const __m128i high = _mm_cmpeq_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line.tags + 8)), wanted);
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(low, high))) & 0x3ff;
#else
    unsigned mask = 0;
    for (unsigned i = 0; i < 10; ++i) mask |= static_cast<unsigned>(line.tags[i] == tag) << i;
    return mask;
#endif
  }

  std::size_t key_size_;
  std::vector<Line> lines_ = std::vector<Line>(kLines);
  std::string heap_, keys_;
};

// Without a name, and with its space allocated.
int NewFile(const std::string& dir, std::size_t size) {
  std::string path = (std::filesystem::path(dir) / "calibrate.XXXXXX").string();
  const int fd = mkstemp(path.data());
  if (fd < 0) Die(path.c_str());
  unlink(path.c_str());
  if (posix_fallocate(fd, 0, static_cast<off_t>(size)) != 0) Die("fallocate");
  return fd;
}

void MeasureFaults(Constants& c, const std::string& dir) {
  constexpr std::size_t kSize = 64 * kMiB;
  constexpr double kPages = kSize / kPage;
  const auto touch = [](char* data) {
    for (std::size_t i = 0; i < kSize; i += kPage) data[i] = 1;
  };
  const auto least = [](double& so_far, double start) { so_far = std::min(so_far, (Seconds() - start) * 1e9 / kPages); };
  c.fault_anonymous = c.fault_file = c.populate_file = 1e300;
  Memory memory(kSize, false);
  for (int i = 0; i < 3; ++i) {
    const double start = Seconds();
    touch(memory.data());
    least(c.fault_anonymous, start);
    madvise(memory.data(), kSize, MADV_DONTNEED);
  }
  // A new file each time, as the pages of an old one stay in memory; the least of three, as a
  // virtual machine may have to get memory from its host first.
  int fd = -1;
  for (int i = 0; i < 3; ++i) {
    for (const bool populate : {false, true}) {
      if (fd >= 0) close(fd);
      fd = NewFile(dir, kSize);
      void* base = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (base == MAP_FAILED) Die("mmap");
      const double start = Seconds();
      if (!populate) {
        touch(static_cast<char*>(base));
      } else if (madvise(base, kSize, MADV_POPULATE_WRITE) != 0) {
        touch(static_cast<char*>(base));  // an old kernel
      }
      least(populate ? c.populate_file : c.fault_file, start);
      munmap(base, kSize);
    }
  }

  const std::string page(kPage, 'p');
  c.pwrite_4k = BestNs(kPages, [&] {
    for (std::size_t i = 0; i < kSize; i += kPage)
      if (pwrite(fd, page.data(), kPage, static_cast<off_t>(i)) != static_cast<ssize_t>(kPage)) Die("pwrite");
  });
  if (fdatasync(fd) != 0) Die("fdatasync");
  std::vector<double> times;
  for (const double end = Seconds() + 2; Seconds() < end && times.size() < 200;) {
    const double start = Seconds();
    if (pwrite(fd, page.data(), kPage, 0) != static_cast<ssize_t>(kPage) || fdatasync(fd) != 0) Die("fdatasync");
    times.push_back((Seconds() - start) * 1e6);
  }
  std::sort(times.begin(), times.end());
  c.fdatasync_us = times[times.size() / 2];
  close(fd);
}

// Between the sizes measured, by the logarithm of the size.
double At(const Constants& c, double bytes, double Loads::*field) {
  std::size_t i = 1;
  while (i + 1 < std::size(kSizes) && bytes > static_cast<double>(kSizes[i])) ++i;
  const double low = std::log(static_cast<double>(kSizes[i - 1])), high = std::log(static_cast<double>(kSizes[i]));
  const double part = std::clamp((std::log(bytes) - low) / (high - low), 0.0, 1.0);
  return c.loads[i - 1].*field * (1 - part) + c.loads[i].*field * part;
}

struct Limits {
  const char* workload;
  double records;
  double get_alone, get_overlapped, get_in_order, set_new, set_existing;
};

// HashDBM on a mapped file, 4 KiB pages. A record of `block` bytes and 9.8 bytes of directory.
Limits ComputeLimits(const Constants& c, const char* name, double records, double block, double cpu) {
  const double directory = 9.8 * records, all = directory + block * records;
  const double bucket = At(c, all, &Loads::chase_4k), record = bucket;
  const double independent = At(c, all, &Loads::independent_4k);
  const double record_lines = 1 + (block <= kLine ? .25 : block / kLine - 1);
  const double write = (block + 6) / c.memcpy_gb_s;
  const double faults = (block + 9.8) / kPage * std::min(c.populate_file, c.fault_file);
  return {name,
          records,
          cpu + bucket + record,
          std::max(cpu, (1.05 + record_lines) * independent),
          std::max(cpu, 1.05 * At(c, directory, &Loads::independent_4k) + block / c.memcpy_gb_s),
          cpu + bucket + c.rmw + write + faults,
          cpu + bucket + record + c.rmw + write};
}

void PrintText(const Constants& c, const std::vector<Limits>& limits) {
  std::puts("random loads, ns per line        chase, 4K pages   2M pages   independent, 4K   2M");
  for (std::size_t i = 0; i < std::size(kSizes); ++i)
    std::printf("  in %3zu MB %33.1f %10.1f %17.1f %4.1f\n", kSizes[i] / kMiB, c.loads[i].chase_4k, c.loads[i].chase_2m,
                c.loads[i].independent_4k, c.loads[i].independent_2m);
  std::printf("memcpy %.1f GB/s, streaming stores %.1f GB/s\n", c.memcpy_gb_s, c.stream_gb_s);
  std::printf("ns: locked instruction %.1f, system call %.0f, clock %.1f, Get in the first-level cache %.1f (8+8), %.1f (16+100)\n", c.rmw,
              c.syscall, c.clock, c.cpu_8, c.cpu_100);
  std::printf("ns per 4K page: anonymous fault %.0f, file fault %.0f, populated file %.0f, pwrite %.0f; fdatasync of one page %.0f us\n",
              c.fault_anonymous, c.fault_file, c.populate_file, c.pwrite_4k, c.fdatasync_us);
  std::puts("HashDBM at best, ns        Get alone   Get overlapped   Get in order   Set new   Set existing");
  for (const Limits& l : limits)
    std::printf("  %-10s %5.0fM %17.0f %16.0f %14.0f %9.0f %14.0f\n", l.workload, l.records / 1e6, l.get_alone, l.get_overlapped,
                l.get_in_order, l.set_new, l.set_existing);
}

void PrintJson(const Constants& c, const std::vector<Limits>& limits) {
  std::printf("{\"loads\":[");
  for (std::size_t i = 0; i < std::size(kSizes); ++i)
    std::printf("%s{\"mb\":%zu,\"chase_4k\":%.2f,\"chase_2m\":%.2f,\"independent_4k\":%.2f,\"independent_2m\":%.2f}", i == 0 ? "" : ",",
                kSizes[i] / kMiB, c.loads[i].chase_4k, c.loads[i].chase_2m, c.loads[i].independent_4k, c.loads[i].independent_2m);
  std::printf("],\"memcpy_gb_s\":%.2f,\"stream_gb_s\":%.2f,\"rmw\":%.2f,\"syscall\":%.1f,\"clock\":%.2f,\"cpu_8\":%.2f,\"cpu_100\":%.2f,",
              c.memcpy_gb_s, c.stream_gb_s, c.rmw, c.syscall, c.clock, c.cpu_8, c.cpu_100);
  std::printf("\"fault_anonymous\":%.1f,\"fault_file\":%.1f,\"populate_file\":%.1f,\"pwrite_4k\":%.1f,\"fdatasync_us\":%.1f,\"limits\":[",
              c.fault_anonymous, c.fault_file, c.populate_file, c.pwrite_4k, c.fdatasync_us);
  for (const Limits& l : limits)
    std::printf(
        "%s{\"workload\":\"%s\",\"records\":%.0f,\"get_alone\":%.1f,\"get_overlapped\":%.1f,\"get_in_order\":%.1f,\"set_new\":%.1f,"
        "\"set_existing\":%.1f}",
        &l == limits.data() ? "" : ",", l.workload, l.records, l.get_alone, l.get_overlapped, l.get_in_order, l.set_new, l.set_existing);
  std::puts("]}");
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  std::string dir = std::filesystem::temp_directory_path().string();
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--json") {
      json = true;
    } else if (argument.starts_with("--dir=")) {
      dir = argument.substr(6);
    } else {
      std::fprintf(stderr, "usage: %s [--json] [--dir=DIR]\n", argv[0]);
      return 2;
    }
  }
  Constants c;
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    std::tie(c.loads[i].chase_4k, c.loads[i].independent_4k) = MeasureLoads(kSizes[i], false);
    std::tie(c.loads[i].chase_2m, c.loads[i].independent_2m) = MeasureLoads(kSizes[i], true);
  }
  MeasureCopies(c);
  MeasureInstructions(c);
  c.cpu_8 = SmallTable(8, 8, 400).Measure();
  c.cpu_100 = SmallTable(16, 100, 150).Measure();
  MeasureFaults(c, dir);
  std::vector<Limits> limits;
  for (const double records : {1e6, 1e7}) {
    limits.push_back(ComputeLimits(c, "8+8", records, 24, c.cpu_8));
    limits.push_back(ComputeLimits(c, "16+100", records, 128, c.cpu_100));
  }
  json ? PrintJson(c, limits) : PrintText(c, limits);
  return 0;
}
