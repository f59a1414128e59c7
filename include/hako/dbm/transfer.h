// Import and Export: read and write the records of a database as streams of text, in the formats of
// text/record_text.h.
//
//   std::ifstream in("packages.tsv");
//   HAKO_RETURN_IF_ERROR(Import(*db, SourceOf(in)).status());
//
// Both run beside other users of the database. Export writes the records as they are at one moment
// (ProcessState in dbm/dbm.h). If Import stops early, at a malformed line or by request, the
// records that it has set stay in the database. Import does not synchronize; the caller decides
// whether the records must survive a power cut.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/text/record_text.h"

namespace hako {

// Receives the text.
using TextSink = std::function<Status(std::string_view text)>;

// Adapters for standard streams. The stream must outlive the transfer.
inline TextSource SourceOf(std::istream& stream) {
  return [&stream](std::span<char> buffer) -> StatusOr<std::size_t> {
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    if (stream.bad() || (stream.gcount() == 0 && !stream.eof())) return absl::UnknownError("cannot read the text");
    return static_cast<std::size_t>(stream.gcount());
  };
}
// See SourceOf.
inline TextSink SinkOf(std::ostream& stream) {
  return [&stream](std::string_view text) {
    stream.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
    return stream.good() ? absl::OkStatus() : absl::UnknownError("cannot write the text");
  };
}

// The progress of a transfer.
struct TransferProgress {
  std::uint64_t num_records = 0;  // records that were set or written
  std::uint64_t num_bytes = 0;    // bytes of text
  // Export: the number of records whose expiry time is lost, because the text is a dump, or TSV
  // without times.
  std::uint64_t num_times_lost = 0;
};

// Options of Import and Export.
struct TransferOptions {
  TextFormat format = TextFormat::kTsv;           // of the text
  TsvOptions tsv = {};                            // escapes, and the times of records
  std::uint64_t line_max = LineReader::kLineMax;  // Import: bytes, at least 256 KiB; a longer line is an error
  DumpOptions dump = {};                          // Export
  // Export: if given, damage does not end the transfer. Damaged records are left out, and each
  // damage is passed to this function.
  OwnedFunction<void(const Status&)> on_damage = {};
  // Called after every 256 records. If it returns an error, such as Cancelled, the transfer ends
  // with it.
  std::function<Status(const TransferProgress&)> progress = {};
};

// The extent of a transfer and the error that ended it. At most one of `text` and `database` is an
// error.
struct TransferResult : TransferProgress {
  Status text;      // the error of reading, writing or parsing the text, or of a callback
  Status database;  // the error of a Set or of the iterator
  // The first error of the two.
  Status status() const { return text.ok() ? database : text; }
};

// Sets every record of the text. A later record replaces an earlier one of the same key.
template <DBM D>
TransferResult Import(D& db, TextSource source, const TransferOptions& options = {}) {
  constexpr std::size_t kBatch = 32;
  constexpr std::size_t kProgressInterval = 256;  // records between calls of progress
  TransferResult result;
  LineReader lines(std::move(source), options.line_max);
  const auto reader = RecordReader::Make(options.format, options.tsv, &lines);
  KeyValue batch[kBatch];
  while (true) {
    const StatusOr<std::size_t> count =
        reader->Read(std::span(batch).first(std::min(kBatch, kProgressInterval - result.num_records % kProgressInterval)));
    result.num_bytes = lines.consumed();
    result.text = count.status();
    if (!count.ok() || *count == 0) return result;
    if constexpr (requires(std::span<const std::string_view> keys) { db.Prefetch(keys); }) {
      std::string_view keys[kBatch];
      for (std::size_t i = 0; i < *count; ++i) keys[i] = batch[i].key;
      db.Prefetch(std::span<const std::string_view>(keys, *count));
    }
    for (std::size_t i = 0; i < *count; ++i) {
      const KeyValue& record = batch[i];
      result.database = db.Set(record.key, record.value, {.expire_at = record.expire_at});
      if (!result.database.ok()) return result;
      ++result.num_records;
    }
    if (result.num_records % kProgressInterval != 0 || !options.progress) continue;
    result.text = options.progress(result);
    if (!result.text.ok()) return result;
  }
}

// Writes every record. An incomplete dump lacks its end line, so readers detect it.
template <DBM D>
TransferResult Export(D& db, TextSink sink, const TransferOptions& options = {}) {
  constexpr std::size_t kBlockSize = 64 << 10;
  TransferResult result;
  const RecordWriter writer(options.format, options.dump, options.tsv);
  std::string block;
  const auto flush = [&] {
    result.num_bytes += block.size();
    result.text = sink(block);
    block.clear();
    return result.text.ok();
  };
  writer.Begin(&block);
  const auto show = [&](std::string_view key, std::string_view value, std::uint64_t expire_at) -> Status {
    writer.Add({key, value, expire_at}, &block);
    if (expire_at != Expiry::kNever && !writer.HasTimes()) ++result.num_times_lost;
    if (block.size() >= kBlockSize && !flush()) return result.text;
    if (++result.num_records % 256 == 0 && options.progress) result.text = options.progress(result);
    return result.text;
  };
  const Status shown = db.ProcessState(show, options.on_damage);
  if (!result.text.ok()) return result;
  result.database = shown;
  if (result.database.ok()) writer.End(&block);
  flush();
  return result;
}

}  // namespace hako
