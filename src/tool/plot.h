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
  bool is_bytes = false;  // the values are bytes, and no numbers of things
};

// How often there is each size.
class Sizes {
 public:
  void Add(std::uint64_t size, std::uint64_t count = 1) {
    counts_[size] += count;
    num_ += count;
    sum_ += static_cast<double>(size) * static_cast<double>(count);
  }
  std::uint64_t num() const { return num_; }
  // A bar for each power of two; the note says the least, median, mean and greatest in bytes.
  Chart ByPowers(std::string title, std::string_view of_what) const;
  // A bar for each size, from 0 on, the last for all from `most` on.
  Chart BySize(std::string title, std::string note, std::uint64_t most) const;

 private:
  std::map<std::uint64_t, std::uint64_t> counts_;
  std::uint64_t num_ = 0;
  double sum_ = 0;
};

// A bar for each tenth of parts of a whole, in percent from 0 to 100.
Chart ByTenths(std::string title, std::string note, const std::vector<double>& percents);

// Lines of text with bars of block characters, which fit 80 columns.
void AppendText(const Chart& chart, std::string* out);
// A picture of all charts that needs nothing else: two a row, under a title.
std::string Svg(std::string_view title, std::string_view subtitle, const std::vector<Chart>& charts);

}  // namespace hako::tool
