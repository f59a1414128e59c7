// The orders of keys: each is total, heads follow it, and numbers come before bytes.
#include "hako/base/comparator.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "support/random.h"

namespace hako {
namespace {

std::string BigEndian(std::uint64_t number, std::size_t size = 8) {
  std::string bytes;
  for (std::size_t i = size; i-- > 0;) bytes.push_back(static_cast<char>(number >> 8 * i));
  return bytes;
}

// Keys in ascending order under C.
template <class C>
void ExpectRising(const std::vector<std::string>& keys) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const int order = C::Compare(keys[i], keys[j]);
      EXPECT_EQ(order < 0, i < j) << C::kName << ": " << testing::PrintToString(keys[i]) << ", " << testing::PrintToString(keys[j]);
      EXPECT_EQ(order > 0, i > j) << C::kName << ": " << testing::PrintToString(keys[i]) << ", " << testing::PrintToString(keys[j]);
      if constexpr (requires { C::Head(keys[i]); }) {
        if (i <= j) {
          EXPECT_LE(C::Head(keys[i]), C::Head(keys[j])) << testing::PrintToString(keys[i]);
        }
      }
    }
  }
}

TEST(Comparator, BytewiseComparesUnsignedBytes) {
  ExpectRising<BytewiseComparator>({"", std::string(1, '\0'), "A", "a", "aa", "b", "\x80", "\xff"});
}

TEST(Comparator, CaseInsensitiveIgnoresCase) {
  ExpectRising<CaseInsensitiveComparator>({"", "[", "Aa", "aAa", "AB", "b", "\xff"});
  EXPECT_EQ(CaseInsensitiveComparator::Compare("Key", "kEY"), 0);
}

TEST(Comparator, DecimalComparesNumbersThenBytes) {
  ExpectRising<DecimalComparator>({"-9223372036854775808", "-99999999999999999999", "-12", "-3", "", "0", "junk", "+7", "07", "7", "7x",
                                   "10", "16777216", "16777217", "9223372036854775807", "99999999999999999999"});
}

TEST(Comparator, HexadecimalComparesNumbersThenBytes) {
  ExpectRising<HexadecimalComparator>({"", "zz", "9", "a", "0xff", "FF", "fF", "100", "ffffffffffffffff", "fffffffffffffffff"});
}

TEST(Comparator, RealNumberComparesNumbersThenBytes) {
  ExpectRising<RealNumberComparator>({"nan", "-1e999", "-1e300", "-2.5", "-1e-300", "", "0", "1e-999", "junk", "1e-300", "0.5", "5e-1",
                                      "+3", "3", "3.0", "1e300", "1e999"});
}

TEST(Comparator, BigEndianComparesNumbers) {
  ExpectRising<SignedBigEndianComparator>({BigEndian(static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::min())),
                                           BigEndian(0x80, 1), BigEndian(static_cast<std::uint64_t>(-1)), "", BigEndian(0), BigEndian(1),
                                           BigEndian(2, 1), BigEndian(std::numeric_limits<std::int64_t>::max())});
  const auto real = [](double number) { return BigEndian(std::bit_cast<std::uint64_t>(number)); };
  ExpectRising<FloatBigEndianComparator>({real(std::numeric_limits<double>::quiet_NaN()), real(-1e300), real(-1), real(-1e-300), "",
                                          real(0), real(1e-300), BigEndian(std::bit_cast<std::uint32_t>(0.5f), 4), real(1), real(1e300)});
}

TEST(Comparator, PairsCompareFirstThenSecond) {
  EXPECT_EQ(SplitPair(JoinPair("first", "second")), (std::pair<std::string_view, std::string_view>("first", "second")));
  EXPECT_EQ(PairComparator<DecimalComparator>::kName, "pair-decimal");
  ExpectRising<PairComparator<DecimalComparator>>({JoinPair("2", "z"), JoinPair("10", ""), JoinPair("10", "a"), JoinPair("11", "")});
  ExpectRising<PairComparator<BytewiseComparator>>({JoinPair("10", "z"), JoinPair("11", ""), JoinPair("2", "a"), JoinPair("2", "b")});
}

// For any bytes: antisymmetric, transitive on triples, and heads agree.
template <class C>
void ExpectTotalOrder() {
  Random random(TestSeed());
  const std::string_view alphabet("-+. 0123456789aAeEfFxX\0\x80\xff", 26);
  std::vector<std::string> keys;
  for (int i = 0; i < 60; ++i) {
    std::string key;
    for (std::uint64_t n = random.Below(9); n > 0; --n) key.push_back(alphabet[random.Below(alphabet.size())]);
    keys.push_back(key);
  }
  for (const auto& a : keys) {
    for (const auto& b : keys) {
      const int order = C::Compare(a, b);
      EXPECT_EQ(order<0, C::Compare(b, a)> 0);
      if constexpr (requires { C::Head(a); }) {
        if (order <= 0) {
          EXPECT_LE(C::Head(a), C::Head(b)) << C::kName << testing::PrintToString(a) << testing::PrintToString(b);
        }
      }
      for (const auto& c : keys) {
        if (order <= 0 && C::Compare(b, c) <= 0) {
          EXPECT_LE(C::Compare(a, c), 0) << C::kName;
        }
      }
    }
  }
}

TEST(Comparator, OrdersAreTotalOverAnyBytes) {
  ExpectTotalOrder<CaseInsensitiveComparator>();
  ExpectTotalOrder<DecimalComparator>();
  ExpectTotalOrder<HexadecimalComparator>();
  ExpectTotalOrder<RealNumberComparator>();
  ExpectTotalOrder<SignedBigEndianComparator>();
  ExpectTotalOrder<FloatBigEndianComparator>();
  ExpectTotalOrder<PairComparator<DecimalComparator>>();
}

}  // namespace
}  // namespace hako
