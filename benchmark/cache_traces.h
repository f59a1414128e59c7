// Traces of keys that a cache is asked for, made from a seed: the same on every machine.
//
//   zipf     one million keys, popularity Zipf 0.99
//   scans    the same, with five scans between, each of ten times as many new keys as the cache has records
//   once     Zipf 0.8, and 40 % of the requests are of keys that never come again, as in caches of web content
//   drift    Zipf 1.0, and one request in 20 replaces the key of one rank by a new key, so that
//            popularity drifts, as in the caches that Yang, Yue and Rashmi describe (OSDI 2020)
//   loops    half Zipf 0.9 over ten times the cache; two loops, of half and of twice the cache, as in the
//            traces of LIRS (Jiang and Zhang, SIGMETRICS 2002) and ARC (Megiddo and Modha, FAST 2003); new keys
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hako/base/hash.h"

namespace hako::traces {

using Trace = std::vector<std::uint64_t>;
inline constexpr std::size_t kKeys = 1'000'000;
inline constexpr std::array<std::string_view, 5> kNames = {"zipf", "scans", "once", "drift", "loops"};

class Source {
 public:
  explicit Source(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() { return MixBits(state_ += 0x9e3779b97f4a7c15); }
  double Fraction() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// Ranks below n of popularity rank^-exponent, by rejection-inversion (Hoermann and Derflinger 1996).
class Zipf {
 public:
  Zipf(std::size_t n, double exponent) : n_(static_cast<double>(n)), q_(exponent) {
    low_ = Integral(1.5) - 1;
    high_ = Integral(n_ + .5);
    sure_ = 2 - Inverse(Integral(2.5) - std::pow(2, -q_));
  }
  std::uint64_t Draw(Source& source) const {
    for (;;) {
      const double u = low_ + source.Fraction() * (high_ - low_), x = Inverse(u);
      const double rank = std::min(std::max(std::floor(x + .5), 1.), n_);
      if (rank - x <= sure_ || u >= Integral(rank + .5) - std::pow(rank, -q_)) return static_cast<std::uint64_t>(rank) - 1;
    }
  }

 private:
  double Integral(double x) const { return q_ == 1 ? std::log(x) : std::pow(x, 1 - q_) / (1 - q_); }
  double Inverse(double y) const { return q_ == 1 ? std::exp(y) : std::pow((1 - q_) * y, 1 / (1 - q_)); }
  double n_, q_, low_, high_, sure_;
};

// `records`: of the cache. The trace has about `length` requests, beside those of scans.
inline Trace Make(std::string_view name, std::size_t records, std::size_t length) {
  Source source(7);
  const Zipf zipf(name == "loops" ? 10 * records : kKeys, name == "once" ? .8 : name == "drift" ? 1. : name == "loops" ? .9 : .99);
  Trace trace;
  std::uint64_t fresh = std::uint64_t{1} << 40, short_loop = 0, long_loop = 0;
  std::vector<std::uint64_t> keys;  // by rank
  for (std::uint64_t i = 0; name == "drift" && i < kKeys; ++i) keys.push_back(i);
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t rank = zipf.Draw(source);
    if (name == "scans" && i % (length / 5) == length / 10) {
      for (std::size_t s = 0; s < 10 * records; ++s) trace.push_back(fresh++);
    } else if (name == "once" && source.Fraction() < .4) {
      trace.push_back(fresh++);
    } else if (name == "drift") {
      if (i % 20 == 0) keys[zipf.Draw(source)] = fresh++;
      trace.push_back(keys[rank]);
    } else if (name == "loops" && source.Next() % 2 == 0) {
      const std::uint64_t kind = source.Next() % 5;
      trace.push_back(kind < 2   ? (std::uint64_t{2} << 40) + short_loop++ % (records / 2)
                      : kind < 4 ? (std::uint64_t{3} << 40) + long_loop++ % (2 * records)
                                 : fresh++);
    } else {
      trace.push_back(rank);
    }
  }
  return trace;
}

}  // namespace hako::traces
