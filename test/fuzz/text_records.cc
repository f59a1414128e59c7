// Reads records from TSV, JSON Lines and dumps, writes them, and reads them again: they are the same.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/target.h"
#include "hako/text/record_text.h"

namespace hako::fuzz {
namespace {

using Records = std::vector<std::tuple<std::string, std::string, std::uint64_t>>;

// The records of a text that arrives in pieces of `piece` bytes, up to the first error.
Records Read(TextFormat format, const TsvOptions& tsv, std::string_view text, std::size_t piece, Status* status) {
  LineReader lines(
      [&](std::span<char> buffer) -> StatusOr<std::size_t> {
        const std::size_t size = std::min({buffer.size(), piece, text.size()});
        text.copy(buffer.data(), size);
        text.remove_prefix(size);
        return size;
      },
      1000);
  const auto reader = RecordReader::Make(format, tsv, &lines);
  Records records;
  for (std::array<KeyValue, 5> batch;;) {
    const StatusOr<std::size_t> count = reader->Read(batch);
    *status = count.status();
    if (!count.ok() || *count == 0) return records;
    for (const KeyValue& record : std::span(batch).first(*count)) records.emplace_back(record.key, record.value, record.expire_at);
  }
}

void Run(std::string_view input) {
  Bytes bytes(input);
  const unsigned mode = bytes.Byte();
  const TextFormat format = std::array{TextFormat::kTsv, TextFormat::kJsonLines, TextFormat::kDump}[mode % 3];
  const TsvOptions tsv{.escapes = mode / 3 % 2 == 0, .times = mode / 6 % 2 == 0};
  const std::string_view text = bytes.Take(input.size());
  Status status, same_status;
  const Records records = Read(format, tsv, text, 1 + mode / 12 * 6, &status);
  Require(Read(format, tsv, text, text.size() + 1, &same_status) == records && same_status == status,
          "the pieces in which a text arrives change its records:", status);
  for (const bool print : {false, true}) {
    const RecordWriter writer(format, {.print = print}, tsv);
    std::string again;
    writer.Begin(&again);
    for (const auto& [key, value, time] : records) writer.Add({key, value, time}, &again);
    writer.End(&again);
    Require(Read(format, {.times = tsv.times}, again, again.size() + 1, &status) == records && status.ok(),
            "records change when written and read:", status);
  }
}

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const TextFormat format : {TextFormat::kTsv, TextFormat::kJsonLines, TextFormat::kDump}) {
    for (const bool print : {false, true}) {
      const RecordWriter writer(format, {.print = print, .mapsize = 1 << 20});
      std::string seed(1, static_cast<char>(static_cast<int>(format) + (print ? 6 : 0)));
      writer.Begin(&seed);
      for (const char* const value : {"", "plain", "tab\tline\nback\\slash", "\xff\xfe bytes", "\xe7\xae\xb1"})
        writer.Add({value, value, seed.size()}, &seed);
      writer.End(&seed);
      seeds.push_back(seed);
    }
  }
  return seeds;
}

const Registration kTarget({.name = "text_records", .run = Run, .make_seeds = MakeSeeds, .mutants = 400});

}  // namespace
}  // namespace hako::fuzz
