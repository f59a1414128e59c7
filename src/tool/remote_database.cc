#include "tool/remote_database.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hako/base/comparator.h"

namespace hako::tool {
namespace {

Status Absent() { return absl::NotFoundError("no record"); }

Status OkOrAbsent(const StatusOr<RemoteReply>& reply) {
  if (!reply.ok()) return reply.status();
  return reply->integer != 0 ? absl::OkStatus() : Absent();
}

// A pattern of MATCH that keys with this prefix match.
std::string PatternOf(std::string_view prefix) {
  std::string pattern;
  for (const char c : prefix) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "*";
}

}  // namespace

StatusOr<std::unique_ptr<RemoteDatabase>> RemoteDatabase::Open(const RemoteAddress& address) {
  HAKO_ASSIGN_OR_RETURN(auto client, RemoteClient::Connect(address));
  return std::unique_ptr<RemoteDatabase>(new RemoteDatabase(std::move(client)));
}

Status RemoteDatabase::Get(std::string_view key, std::string* value) {
  HAKO_ASSIGN_OR_RETURN(RemoteReply reply, client_->Run({"GET", key}));
  if (reply.is_nil()) return Absent();
  if (reply.type != RemoteReply::Type::kText) return absl::AbortedError("the server's reply is no value");
  *value = std::move(reply.text);
  return absl::OkStatus();
}

StatusOr<std::uint64_t> RemoteDatabase::GetSize(std::string_view key) {
  HAKO_RETURN_IF_ERROR(OkOrAbsent(client_->Run({"EXISTS", key})));
  HAKO_ASSIGN_OR_RETURN(const RemoteReply size, client_->Run({"STRLEN", key}));
  return static_cast<std::uint64_t>(size.integer);
}

Status RemoteDatabase::Set(std::string_view key, std::string_view value, const SetOptions& options) {
  std::vector<std::string_view> words = {"SET", key, value};
  const std::string ttl = absl::StrCat(options.ttl.value_or(std::chrono::milliseconds(0)).count()), at = absl::StrCat(options.expire_at);
  if (options.ttl) words.insert(words.end(), {"PX", ttl});
  if (options.expire_at != Expiry::kNever) words.insert(words.end(), {"PXAT", at});
  if (!options.overwrite) words.push_back("NX");
  client_->Add(words);
  HAKO_ASSIGN_OR_RETURN(const RemoteReply reply, client_->Receive());
  return reply.is_nil() ? absl::AlreadyExistsError("a record exists") : absl::OkStatus();
}

// In one step: the server forgets the transaction if the record has changed since it was looked up.
Status RemoteDatabase::Append(std::string_view key, std::string_view value, std::string_view delimiter) {
  if (delimiter.empty()) return client_->Run({"APPEND", key, value}).status();
  for (;;) {
    HAKO_RETURN_IF_ERROR(client_->Run({"WATCH", key}).status());
    HAKO_ASSIGN_OR_RETURN(const RemoteReply exists, client_->Run({"EXISTS", key}));
    HAKO_RETURN_IF_ERROR(client_->Run({"MULTI"}).status());
    HAKO_RETURN_IF_ERROR(
        client_->Run({"APPEND", key, exists.integer != 0 ? absl::StrCat(ToAbsl(delimiter), ToAbsl(value)) : std::string(value)}).status());
    HAKO_ASSIGN_OR_RETURN(const RemoteReply done, client_->Run({"EXEC"}));
    if (done.is_nil()) continue;
    const bool is_error = !done.elements.empty() && done.elements[0].type == RemoteReply::Type::kText;
    return is_error ? absl::AbortedError(done.elements[0].text) : absl::OkStatus();
  }
}

StatusOr<std::int64_t> RemoteDatabase::Increment(std::string_view key, std::int64_t delta) {
  HAKO_ASSIGN_OR_RETURN(const RemoteReply sum, client_->Run({"INCRBY", key, absl::StrCat(delta)}));
  return sum.integer;
}

Status RemoteDatabase::Remove(std::string_view key) { return OkOrAbsent(client_->Run({"DEL", key})); }

Status RemoteDatabase::Rekey(std::string_view old_key, std::string_view new_key, const RekeyOptions& options) {
  const auto reply = client_->Run({options.overwrite ? "RENAME" : "RENAMENX", old_key, new_key});
  if (!reply.ok()) return absl::StrContains(reply.status().message(), "no such key") ? Absent() : reply.status();
  return options.overwrite || reply->integer != 0 ? absl::OkStatus() : absl::AlreadyExistsError("a record exists");
}

StatusOr<std::uint64_t> RemoteDatabase::GetExpiry(std::string_view key) {
  HAKO_ASSIGN_OR_RETURN(const RemoteReply time, client_->Run({"PEXPIRETIME", key}));
  if (time.integer == -2) return Absent();
  return time.integer < 0 ? Expiry::kNever : static_cast<std::uint64_t>(time.integer);
}

Status RemoteDatabase::Expire(std::string_view key, std::uint64_t ttl, std::uint64_t at) {
  return OkOrAbsent(client_->Run({ttl != 0 ? "PEXPIRE" : "PEXPIREAT", key, absl::StrCat(ttl != 0 ? ttl : at)}));
}

Status RemoteDatabase::Persist(std::string_view key) {
  HAKO_ASSIGN_OR_RETURN(const RemoteReply persisted, client_->Run({"PERSIST", key}));
  return persisted.integer != 0 ? absl::OkStatus() : OkOrAbsent(client_->Run({"EXISTS", key}));
}

StatusOr<std::uint64_t> RemoteDatabase::Count() {
  HAKO_ASSIGN_OR_RETURN(const RemoteReply count, client_->Run({"DBSIZE"}));
  return static_cast<std::uint64_t>(count.integer);
}

StatusOr<std::vector<RemoteReply>> RemoteDatabase::Elements(std::initializer_list<std::string_view> words) {
  HAKO_ASSIGN_OR_RETURN(RemoteReply reply, client_->Run(words));
  if (reply.type != RemoteReply::Type::kArray) return absl::AbortedError("the server's reply is no list");
  return std::move(reply.elements);
}

// Shows the keys with their values. Returns whether to continue.
StatusOr<bool> RemoteDatabase::ShowPage(std::span<const RemoteReply> keys, const Visit& visit, std::uint64_t* num_others) {
  std::vector<std::string_view> words = {"MGET"};
  for (const RemoteReply& key : keys) words.push_back(key.text);
  client_->Add(words);
  HAKO_ASSIGN_OR_RETURN(const RemoteReply values, client_->Receive());
  if (values.elements.size() != keys.size()) return absl::AbortedError("MGET: a reply of another number of values");
  std::size_t bytes = 0;
  for (const RemoteReply& value : values.elements) bytes += value.text.size();
  page_.Note(bytes);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (values.elements[i].is_nil()) {  // removed meanwhile, or of another type
      ++*num_others;
    } else if (!visit(keys[i].text, values.elements[i].text)) {
      return false;
    }
  }
  return true;
}

Status RemoteDatabase::Scan(std::string_view prefix, bool keys_only, const Visit& visit, std::uint64_t* num_others) {
  const std::string pattern = PatternOf(prefix);
  std::string cursor = "0";
  do {
    HAKO_ASSIGN_OR_RETURN(std::vector<RemoteReply> page,
                          Elements({"SCAN", cursor, "MATCH", pattern, "COUNT", keys_only ? "1000" : page_.text()}));
    if (page.size() != 2) return absl::AbortedError("SCAN: the reply is no page");
    cursor = page[0].text;
    if (!keys_only) {
      std::span<const RemoteReply> keys = page[1].elements;
      while (!keys.empty()) {  // a server may return more than COUNT
        const std::size_t size = std::min(keys.size(), page_.size());
        HAKO_ASSIGN_OR_RETURN(const bool continues, ShowPage(keys.first(size), visit, num_others));
        if (!continues) return absl::OkStatus();
        keys = keys.subspan(size);
      }
      continue;
    }
    for (const RemoteReply& key : page[1].elements) {
      if (!visit(key.text, std::nullopt)) return absl::OkStatus();
    }
  } while (cursor != "0");
  return absl::OkStatus();
}

// OK if the server can show its keys in bytewise order.
Status RemoteDatabase::CheckOrder() {
  HAKO_ASSIGN_OR_RETURN(const std::vector<RemoteReply> figures, Elements({"HAKO.STAT"}));
  for (std::size_t i = 0; i + 1 < figures.size(); i += 2) {
    if (figures[i].text == "comparator" && figures[i + 1].text != BytewiseComparator::kName)
      return absl::UnimplementedError(absl::StrCat("the database has the order '", figures[i + 1].text, "', not that of bytes"));
  }
  return absl::OkStatus();
}

Status RemoteDatabase::Range(std::string_view from, std::optional<std::string_view> to, bool is_reverse, bool keys_only,
                             const Visit& visit) {
  HAKO_RETURN_IF_ERROR(CheckOrder());
  if (to && to->empty()) return absl::OkStatus();  // nothing is before the empty key; to the server "" is no end
  std::string low(from), high(to.value_or(""));
  const std::size_t step = keys_only ? 1 : 2;
  for (;;) {
    const std::size_t limit = page_.size();
    const std::string limit_text = page_.text();
    std::vector<std::string_view> words = {"HAKO.RANGE", low, high, "LIMIT", limit_text};
    if (is_reverse) words.push_back("REV");
    if (keys_only) words.push_back("KEYS");
    client_->Add(words);
    StatusOr<RemoteReply> page = client_->Receive();
    if (!page.ok() && absl::StrContains(page.status().message(), "not ordered")) return absl::UnimplementedError(page.status().message());
    HAKO_RETURN_IF_ERROR(page.status());
    const std::vector<RemoteReply>& found = page->elements;
    std::size_t bytes = 0;
    for (const RemoteReply& one : found) bytes += one.text.size();
    page_.Note(bytes);
    for (std::size_t i = 0; i + step <= found.size(); i += step) {
      if (!visit(found[i].text, keys_only ? std::nullopt : std::optional<std::string_view>(found[i + 1].text))) return absl::OkStatus();
    }
    if (found.size() < step * limit) return absl::OkStatus();
    const std::string& last = found[found.size() - step].text;
    if (is_reverse && last.empty()) return absl::OkStatus();
    is_reverse ? high = last : low = last + '\0';
  }
}

}  // namespace hako::tool
