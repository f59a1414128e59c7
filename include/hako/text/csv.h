// Reads and writes CSV (RFC 4180) as a stream, one record at a time.
//
// The reader accepts only the following text, and keeps each byte of a field. It refuses any other
// text, and names the line, counted from 1; for a quoted field this is the line in which the field
// begins.
//   records  end with LF or CR LF, also mixed; the end of the text ends the last. Lines without a byte
//            are skipped
//   fields   are separated by commas. A blank is an ordinary byte of a field
//   quotes   a field that begins with " ends with the next single ", before a comma or the end of the
//            record. Inside, all bytes stand for themselves, even line ends, and "" stands for one
//            quote
//   refused  a quote in a field that does not begin with one; text after a closing quote; a quote that
//            is not closed; a CR outside of quotes without an LF after it, as in texts of old
//            Macintoshes; a field of more than 64 MiB
// A byte order mark at the beginning of the text is skipped. Bytes need not be UTF-8.
//
// An empty field and "" differ: the reader tells which fields had quotes. The writer puts quotes
// around an empty text, and writes nothing for a missing value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/status.h"

namespace hako {

// A field of a record.
struct CsvField {
  std::string_view text;   // without its quotes; valid until the visitor returns
  bool is_quoted = false;  // whether it had quotes
};

// Reads CSV from pieces of a text: see the head of this header. One thread.
class CsvReader {
 public:
  // Receives a record, which begins in this line. If it returns an error, the reading ends with
  // that error.
  using Take = std::function<Status(std::span<const CsvField> fields, std::uint64_t line)>;
  static constexpr std::size_t kFieldMax = 64 << 20;  // bytes of a field

  explicit CsvReader(Take take, std::size_t field_max = kFieldMax) : take_(std::move(take)), field_max_(field_max) {}

  // Reads the next piece of the text. Returns InvalidArgument, which names the line, if the text is
  // malformed; the records before that line were passed on. Feed must not be called again after an
  // error.
  Status Feed(std::string_view piece);
  // Call after the last piece.
  Status End();

 private:
  enum class State { kBegin, kPlain, kQuoted, kQuoteInQuotes, kReturn };
  struct Place {
    std::size_t end;
    bool is_quoted;
  };

  Status FeedByte(char c);
  void EndField();
  Status EndRecord();
  Status Refuse(std::string_view what, std::uint64_t line) const;
  std::size_t FieldBegin() const { return fields_.empty() ? 0 : fields_.back().end; }

  const Take take_;
  const std::size_t field_max_;
  State state_ = State::kBegin;
  bool is_quoted_ = false;  // whether the present field had quotes
  std::uint64_t line_ = 1, record_line_ = 1, field_line_ = 1;
  std::size_t num_marks_ = 0;  // bytes of the byte order mark seen; kNoMarks: the text has begun
  std::string bytes_;          // of the fields of the present record
  std::vector<Place> fields_;
  std::vector<CsvField> shown_;
};

// Appends a field, in quotes if a reader needs them; nullopt is a missing value.
void AppendCsvField(std::optional<std::string_view> text, std::string* out);

}  // namespace hako
