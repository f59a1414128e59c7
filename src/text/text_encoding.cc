#include "hako/text/text_encoding.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "hako/base/status.h"

namespace hako::text {

void AppendHex(std::string_view bytes, std::string* out) { out->append(absl::BytesToHexString(ToAbsl(bytes))); }

std::optional<std::size_t> DecodeHex(std::string_view text, char* out) {
  const auto is_digit = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  if (text.size() % 2 != 0 || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  return absl::HexStringToBytes(ToAbsl(text)).copy(out, std::string::npos);
}

void AppendBase64(std::string_view bytes, std::string* out) { out->append(absl::Base64Escape(ToAbsl(bytes))); }

std::optional<std::size_t> DecodeBase64(std::string_view text, char* out) {
  std::string bytes;
  // abseil also takes text without padding, with blanks, and with bits after the last byte.
  if (!absl::Base64Unescape(ToAbsl(text), &bytes) || absl::Base64Escape(bytes) != ToAbsl(text)) return std::nullopt;
  return bytes.copy(out, std::string::npos);
}

}  // namespace hako::text
