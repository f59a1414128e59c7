// Charts of `hako inspect --plot`: as text, and as a picture (SVG).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hako::tool {

struct Chart {
  struct Bar {
    std::string label;
    std::uint64_t value;
  };
  std::string title;  // "Sizes of keys"
  std::string note;   // "3,000 keys: least 2, median 5, mean 4.6, greatest 5 bytes"
  std::vector<Bar> bars;
  bool is_bytes = false;  // whether the values are bytes rather than counts
};

// Counts how often each size occurs.
class Sizes {
 public:
  void Add(std::uint64_t size, std::uint64_t count = 1) {
    counts_[size] += count;
    num_ += count;
    sum_ += static_cast<double>(size) * static_cast<double>(count);
  }
  std::uint64_t num() const { return num_; }
  // A chart with a bar for each power of two. The note has the least, median, mean and greatest
  // size in bytes.
  Chart ByPowers(std::string title, std::string_view of_what) const;
  // A chart with a bar for each size from 0 on. The last bar is for all sizes from `most` on.
  Chart BySize(std::string title, std::string note, std::uint64_t most) const;

 private:
  std::map<std::uint64_t, std::uint64_t> counts_;
  std::uint64_t num_ = 0;
  double sum_ = 0;
};

// A chart with a bar for each tenth of the range from 0 to 100 percent.
Chart ByTenths(std::string title, std::string note, const std::vector<double>& percents);

// Appends lines of at most 80 columns, with bars of block characters.
void AppendText(const Chart& chart, std::string* out);
// Returns one self-contained picture of all charts: two in a row, under a title.
std::string Svg(std::string_view title, std::string_view subtitle, const std::vector<Chart>& charts);

}  // namespace hako::tool
