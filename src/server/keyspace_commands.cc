// Commands on keys, whatever their values.
#include <optional>
#include <string_view>
#include <utility>

#include "server/glob_pattern.h"
#include "server/handlers.h"
#include "server/number_text.h"

namespace hako::server::commands {

namespace {

using Value = Keyspace::Value;

// Replies with an array of the keys that were written to `keys`.
void ReplyKeys(Call& call, const OutputBuffer& keys, std::size_t count) {
  call.reply.Array(count);
  call.reply.out().Append(keys.view());
}

void RenameAs(Call& call, bool overwrite) {
  const StatusOr<bool> exists = call.keys().Contains(call.arg(1));
  if (!call.Check(exists.status())) return;
  Status status = *exists ? absl::OkStatus() : AbsentError();
  if (*exists && call.arg(1) == call.arg(2))
    status = overwrite ? absl::OkStatus() : PresentError();
  else if (*exists)
    status = call.keys().Rekey(call.arg(1), call.arg(2), overwrite, false);
  if (absl::IsNotFound(status)) return call.Fail("ERR no such key");
  if (!overwrite && absl::IsAlreadyExists(status)) return call.reply.Bool(false);
  if (!call.Check(status)) return;
  overwrite ? call.reply.Ok() : call.reply.Bool(true);
}

// The arguments of SCAN after the cursor.
struct ScanArguments {
  std::int64_t count = 10;
  std::string_view pattern = "*";
  bool has_strings = true;  // whether TYPE allows strings
};

bool ParseScanArguments(Call& call, ScanArguments* arguments) {
  for (std::size_t i = 2; i < call.size(); i += 2) {
    const bool has_value = i + 1 < call.size();
    if (has_value && call.Is(i, "count")) {
      if (!call.Integer(i + 1, &arguments->count)) return false;
      if (arguments->count < 1) return call.FailSyntax(), false;
    } else if (has_value && call.Is(i, "match")) {
      arguments->pattern = call.arg(i + 1);
    } else if (has_value && call.Is(i, "type")) {
      arguments->has_strings = call.Is(i + 1, "string");
    } else {
      return call.FailSyntax(), false;
    }
  }
  return true;
}

// Parses the number of a cursor. No cursor has the number 0.
std::optional<std::uint64_t> ParseCursor(std::string_view text) {
  std::uint64_t number = 0;
  if (text.empty()) return 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

void Del(Call& call) {
  const StatusOr<std::int64_t> removed = call.keys().RemoveMulti(call.args.subspan(1));
  if (call.Check(removed.status())) call.reply.Integer(*removed);
}

void Exists(Call& call) {
  std::int64_t count = 0;
  const auto show = [&](std::size_t, Value value) {
    call.CountLookup(value.has_value());
    count += value ? 1 : 0;
  };
  if (call.Check(call.keys().ShowMulti(call.args.subspan(1), show))) call.reply.Integer(count);
}

void Type(Call& call) {
  const StatusOr<bool> exists = call.keys().Contains(call.arg(1));
  if (!call.Check(exists.status())) return;
  call.CountLookup(*exists);
  call.reply.Simple(*exists ? "string" : "none");
}

void Keys(Call& call) {
  const GlobPattern pattern(call.arg(1));
  OutputBuffer keys(call.reply.out().limit());
  ReplyWriter writer(&keys, call.reply.protocol());
  std::size_t count = 0;
  auto it = call.keys().MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
    if (!pattern.Matches(it.key())) continue;
    writer.Bulk(it.key());
    ++count;
  }
  if (call.Check(it.status())) ReplyKeys(call, keys, count);
}

// Each thread moves over the keys in random steps, so each key is equally likely.
void RandomKey(Call& call) {
  static constexpr unsigned kStepsMax = 16;
  auto& walk = call.thread.walk;
  if (walk == nullptr) walk = std::make_unique<AnyDBM::Iterator>(call.keys().MakeIterator());
  for (int i = 0; i < 1000; ++i) {
    for (auto steps = 1 + call.thread.random() % kStepsMax; steps > 0; --steps) {
      if (walk->Valid()) walk->Next();
      if (!walk->Valid()) walk->First();
    }
    if (!walk->Valid()) break;
    const StatusOr<bool> exists = call.keys().Contains(walk->key());
    if (!call.Check(exists.status())) return;
    if (*exists) return call.reply.Bulk(walk->key());
  }
  call.reply.Null();
}

void Scan(Call& call) {
  ScanArguments arguments;
  const auto number = ParseCursor(call.arg(1));
  if (!number) return call.Fail("ERR invalid cursor");
  if (!ParseScanArguments(call, &arguments)) return;
  std::optional<AnyDBM::Iterator> it;
  if (*number == 0) {
    it.emplace(call.keys().MakeIterator());
    it->First();
  } else if (it = call.server().cursors.Take(*number); !it) {
    return call.Fail("ERR invalid cursor");
  }
  const GlobPattern pattern(arguments.pattern);
  OutputBuffer keys(call.reply.out().limit());
  ReplyWriter writer(&keys, call.reply.protocol());
  std::size_t count = 0;
  for (std::int64_t left = arguments.count; left > 0 && it->Valid(); --left, it->Next()) {
    if (!arguments.has_strings || !pattern.Matches(it->key())) continue;
    writer.Bulk(it->key());
    ++count;
  }
  if (!call.Check(it->status())) return;
  const std::uint64_t next = it->Valid() ? call.server().cursors.Keep(*std::move(it)) : 0;
  call.reply.Array(2);
  call.reply.Bulk(IntegerText(static_cast<std::int64_t>(next)).view());
  ReplyKeys(call, keys, count);
}

void Rename(Call& call) { RenameAs(call, true); }
void RenameNx(Call& call) { RenameAs(call, false); }

void Copy(Call& call) {
  bool replaces = false;
  for (std::size_t i = 3; i < call.size(); ++i) {
    if (call.Is(i, "replace")) {
      replaces = true;
    } else if (call.Is(i, "db") && i + 1 < call.size()) {
      std::int64_t number = 0;
      if (!call.Integer(++i, &number)) return;
      if (number != 0) return call.Fail("ERR DB index is out of range");
    } else {
      return call.FailSyntax();
    }
  }
  if (call.arg(1) == call.arg(2)) return call.Fail("ERR source and destination objects are the same");
  const Status status = call.keys().Rekey(call.arg(1), call.arg(2), replaces, true);
  call.CountLookup(!absl::IsNotFound(status));
  if (absl::IsNotFound(status) || absl::IsAlreadyExists(status)) return call.reply.Bool(false);
  if (call.Check(status)) call.reply.Bool(true);
}

void DbSize(Call& call) { call.reply.Integer(static_cast<std::int64_t>(call.keys().Count())); }

void FlushAll(Call& call) {
  if (call.size() > 2 || (call.size() == 2 && !call.Is(1, "async") && !call.Is(1, "sync"))) return call.FailSyntax();
  if (call.Check(call.keys().Clear())) call.reply.Ok();
}

void ObjectEncoding(Call& call) {
  static constexpr std::size_t kEmbeddedMax = 44;
  std::string_view encoding;
  const auto show = [&](Value value) {
    if (value) encoding = ParseInteger(*value) ? "int" : value->size() <= kEmbeddedMax ? "embstr" : "raw";
  };
  if (!call.Check(call.keys().Show(call.arg(2), show))) return;
  call.CountLookup(!encoding.empty());
  encoding.empty() ? call.reply.Null() : call.reply.Bulk(encoding);
}

void ObjectRefCount(Call& call) {
  const StatusOr<bool> exists = call.keys().Contains(call.arg(2));
  if (!call.Check(exists.status())) return;
  call.CountLookup(*exists);
  *exists ? call.reply.Integer(1) : call.reply.Null();
}

void MemoryUsage(Call& call) {
  static constexpr std::size_t kOverhead = 32;  // about the bytes of a record
  std::int64_t samples = 0;
  for (std::size_t i = 3; i < call.size(); i += 2) {
    if (!call.Is(i, "samples") || i + 1 == call.size()) return call.FailSyntax();
    if (!call.Integer(i + 1, &samples)) return;
    if (samples < 0) return call.FailSyntax();
  }
  std::optional<std::size_t> size;
  const auto show = [&](Value value) {
    if (value) size = value->size() + call.arg(2).size() + kOverhead;
  };
  if (!call.Check(call.keys().Show(call.arg(2), show))) return;
  size ? call.reply.Integer(static_cast<std::int64_t>(*size)) : call.reply.Null();
}

}  // namespace hako::server::commands
