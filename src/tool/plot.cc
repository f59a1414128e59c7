#include "tool/plot.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hako/text/text_encoding.h"
#include "tool/numbers.h"
#include "tool/row_printer.h"
#include "tool/times.h"

namespace hako::tool {
namespace {

std::string ShownValue(const Chart& chart, std::uint64_t value) { return chart.is_bytes ? FormatBytes(value) : GroupDigits(value); }

std::string ShortNumber(std::uint64_t number) {
  if (number < 10'000) return std::to_string(number);
  constexpr std::array<const char*, 6> kUnits = {"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  std::size_t unit = 0;
  number >>= 10;
  for (; number >= 10'000 && unit + 1 < kUnits.size(); number >>= 10) ++unit;
  return absl::StrCat(number, " ", kUnits[unit]);
}

std::uint64_t Greatest(const Chart& chart) {
  std::uint64_t greatest = 1;
  for (const Chart::Bar& bar : chart.bars) greatest = std::max(greatest, bar.value);
  return greatest;
}

std::string Escaped(std::string_view text) {
  std::string plain, escaped;
  text::AppendPrintable(text, &plain, /*escapes_backslash=*/false);
  for (const char c : plain) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else
      escaped += c;
  }
  return escaped;
}

}  // namespace

Chart Sizes::ByPowers(std::string title, std::string_view of_what) const {
  Chart chart = {.title = std::move(title), .note = absl::StrCat("no ", ToAbsl(of_what)), .bars = {}};
  if (num_ == 0) return chart;
  std::uint64_t median = 0;
  for (std::uint64_t seen = 0; const auto& [size, count] : counts_) {
    median = size;
    if ((seen += count) * 2 >= num_) break;
  }
  const double mean = sum_ / static_cast<double>(num_);
  chart.note = absl::StrCat(GroupDigits(num_), " ", ToAbsl(of_what), ": least ", GroupDigits(counts_.begin()->first), ", median ",
                            GroupDigits(median), ", mean ",
                            mean < 100 ? absl::StrFormat("%.1f", mean) : GroupDigits(static_cast<std::uint64_t>(std::llround(mean))),
                            ", greatest ", GroupDigits(counts_.rbegin()->first), " bytes");
  // Bar n is for the sizes of n bits: 0, 1, 2 to 3, 4 to 7, ...
  const int first = static_cast<int>(std::bit_width(counts_.begin()->first)),
            last = static_cast<int>(std::bit_width(counts_.rbegin()->first));
  for (int bits = first; bits <= last; ++bits) {
    const std::uint64_t low = bits == 0 ? 0 : std::uint64_t{1} << (bits - 1), high = bits == 0 ? 0 : low + (low - 1);
    std::uint64_t count = 0;
    for (auto it = counts_.lower_bound(low); it != counts_.end() && it->first <= high; ++it) count += it->second;
    chart.bars.push_back({low == high ? ShortNumber(low) : absl::StrCat(ShortNumber(low), "–", ShortNumber(high)), count});
  }
  return chart;
}

Chart Sizes::BySize(std::string title, std::string note, std::uint64_t most) const {
  Chart chart = {.title = std::move(title), .note = std::move(note), .bars = {}};
  const std::uint64_t last = counts_.empty() ? 0 : std::min(most, counts_.rbegin()->first);
  for (std::uint64_t size = 0; size <= last; ++size) chart.bars.push_back({std::to_string(size), 0});
  for (const auto& [size, count] : counts_) chart.bars[std::min(size, last)].value += count;
  if (!counts_.empty() && counts_.rbegin()->first > most) chart.bars.back().label += " or more";
  return chart;
}

Chart ByTenths(std::string title, std::string note, const std::vector<double>& percents) {
  Chart chart = {.title = std::move(title), .note = std::move(note), .bars = {}};
  for (int i = 0; i < 10; ++i) chart.bars.push_back({absl::StrCat(10 * i, "–", 10 * (i + 1), " %"), 0});
  for (const double percent : percents) ++chart.bars[static_cast<std::size_t>(std::clamp(percent / 10 - 1e-9, 0.0, 9.0))].value;
  return chart;
}

void AppendText(const Chart& chart, std::string* out) {
  absl::StrAppend(out, chart.title, "\n  ", chart.note, "\n");
  std::size_t label_width = 0, value_width = 0;
  for (const Chart::Bar& bar : chart.bars) {
    label_width = std::max(label_width, DisplayWidth(bar.label));
    value_width = std::max(value_width, ShownValue(chart, bar.value).size());
  }
  const std::size_t width = 76 - std::min<std::size_t>(label_width + value_width, 40);
  const std::uint64_t greatest = Greatest(chart);
  for (const Chart::Bar& bar : chart.bars) {
    constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    auto eighths =
        static_cast<std::size_t>(static_cast<double>(bar.value) / static_cast<double>(greatest) * static_cast<double>(8 * width));
    if (bar.value != 0) eighths = std::max<std::size_t>(eighths, 1);
    const std::string value = ShownValue(chart, bar.value);
    absl::StrAppend(out, "  ", std::string(label_width - DisplayWidth(bar.label), ' '), bar.label, " ");
    absl::StrAppend(out, std::string(value_width - value.size(), ' '), value, " ");
    for (std::size_t i = 0; i < eighths / 8; ++i) out->append("█");
    absl::StrAppend(out, kEighths[eighths % 8], "\n");
  }
}

std::string Svg(std::string_view title, std::string_view subtitle, const std::vector<Chart>& charts) {
  constexpr int kWidth = 480, kHeight = 290, kGap = 24, kTop = 96;  // the size of a card, and the space around the cards
  const int num_rows = static_cast<int>(charts.size() + 1) / 2;
  const int width = 2 * kWidth + 3 * kGap, height = kTop + num_rows * (kHeight + kGap);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
      "font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n"
      "<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#f4f5f7\"/>\n"
      "<text x=\"%d\" y=\"46\" font-size=\"24\" font-weight=\"bold\" fill=\"#1f2933\">%s</text>\n"
      "<text x=\"%d\" y=\"72\" font-size=\"14\" fill=\"#52606d\">%s</text>\n",
      width, height, width, height, Escaped(title), width, height, kGap, Escaped(title), kGap, Escaped(subtitle));
  for (std::size_t i = 0; i < charts.size(); ++i) {
    const Chart& chart = charts[i];
    const int left = kGap + static_cast<int>(i % 2) * (kWidth + kGap), top = kTop + static_cast<int>(i / 2) * (kHeight + kGap);
    absl::StrAppendFormat(
        &svg,
        "<g transform=\"translate(%d %d)\">\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#ffffff\" stroke=\"#e4e7eb\"/>\n"
        "<text x=\"20\" y=\"32\" font-size=\"16\" font-weight=\"bold\" fill=\"#1f2933\">%s</text>\n"
        "<text x=\"20\" y=\"52\" font-size=\"11\" fill=\"#52606d\">%s</text>\n",
        left, top, kWidth, kHeight, Escaped(chart.title), Escaped(chart.note));
    constexpr double kPlotLeft = 20, kPlotTop = 80, kPlotBottom = 250;
    const double plot_width = kWidth - 2 * kPlotLeft;
    const double step = plot_width / static_cast<double>(std::max<std::size_t>(chart.bars.size(), 1));
    const double bar_width = std::min(step * 0.8, 70.0);
    const double greatest = static_cast<double>(Greatest(chart));
    absl::StrAppendFormat(&svg, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#9aa5b1\"/>\n", kPlotLeft,
                          kPlotLeft + plot_width, kPlotBottom, kPlotBottom);
    std::size_t label_width = 0, value_width = 0;
    for (const Chart::Bar& bar : chart.bars) {
      label_width = std::max(label_width, DisplayWidth(bar.label));
      value_width = std::max(value_width, ShownValue(chart, bar.value).size());
    }
    const bool is_crowded = static_cast<double>(label_width) * 5.8 > step;      // then labels are slanted
    const bool has_values = static_cast<double>(value_width) * 5.2 < step + 4;  // else only the greatest bar has a value
    for (std::size_t j = 0; j < chart.bars.size(); ++j) {
      const Chart::Bar& bar = chart.bars[j];
      const double center = kPlotLeft + (static_cast<double>(j) + 0.5) * step;
      double bar_height = static_cast<double>(bar.value) / greatest * (kPlotBottom - kPlotTop);
      if (bar.value != 0) bar_height = std::max(bar_height, 1.5);
      const std::string value = ShownValue(chart, bar.value);
      absl::StrAppendFormat(&svg,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#2f7ed8\"><title>%s: %s</title></rect>\n",
                            center - bar_width / 2, kPlotBottom - bar_height, bar_width, bar_height, Escaped(bar.label), value);
      if (bar.value != 0 && (has_values || bar.value == Greatest(chart)))
        absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"9\" text-anchor=\"middle\" fill=\"#3e4c59\">%s</text>\n",
                              center, kPlotBottom - bar_height - 4, value);
      if (is_crowded)
        absl::StrAppendFormat(
            &svg, "<text transform=\"translate(%.1f %.1f) rotate(-35)\" font-size=\"9\" text-anchor=\"end\" fill=\"#52606d\">%s</text>\n",
            center + 4, kPlotBottom + 12, Escaped(bar.label));
      else
        absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"10\" text-anchor=\"middle\" fill=\"#52606d\">%s</text>\n",
                              center, kPlotBottom + 16, Escaped(bar.label));
    }
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace hako::tool
