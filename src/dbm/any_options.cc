#include "hako/dbm/any_options.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "hako/base/parse_number.h"

namespace hako {
namespace {

constexpr std::string_view kThereAre =
    "the options are dbm, file, mode, wait, num_records, align_pow, seed, page_size, max_bytes, width, cache_bytes, checkpoint_bytes, "
    "reader_bytes, reader_age, "
    "log_bytes, snapshot_bytes, log_archive, expiry, capacity_bytes, capacity_records, "
    "durability, sync_interval, reclaim_bytes, unproven, order, codec, raw, direct, huge_pages, block_cache_bytes, reserve_bytes, grow_min "
    "and "
    "grow_max";

// Assigns the number in `text`, or leaves `out` unchanged if `text` is not a number.
template <class T>
bool TakeNumber(std::string_view text, std::int64_t max, T* out) {
  const auto number = ParseNumber(text);
  if (!number || *number < 0 || *number > max) return false;
  *out = static_cast<T>(*number);
  return true;
}

bool TakeMode(std::string_view text, OpenMode* mode) {
  constexpr std::pair<std::string_view, OpenMode> kModes[] = {
      {"read", OpenMode::kReadOnly}, {"write", OpenMode::kReadWrite}, {"create", OpenMode::kCreate}, {"truncate", OpenMode::kTruncate}};
  const auto it = std::find_if(std::begin(kModes), std::end(kModes), [text](const auto& named) { return named.first == text; });
  if (it == std::end(kModes)) return false;
  *mode = it->second;
  return true;
}

bool TakeDurability(std::string_view text, Durability* durability) {
  *durability = text == "power" ? Durability::kPower : text == "none" ? Durability::kNone : Durability::kProcess;
  return text == "power" || text == "process" || text == "none";
}

bool TakeUnproven(std::string_view text, UnprovenUpdates* unproven) {
  *unproven = text == "accept" ? UnprovenUpdates::kAccept : text == "drop" ? UnprovenUpdates::kDrop : UnprovenUpdates::kRefuse;
  return text == "accept" || text == "drop" || text == "refuse";
}

bool TakeFlag(std::string_view text, bool* flag) {
  *flag = text.empty() || text == "true";
  return *flag || text == "false";
}

// Sets an option. Returns false if the option does not accept the value, and nullopt if there is no
// such option.
std::optional<bool> Take(std::string_view name, std::string_view value, AnyOptions* options) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  FileOptions& file = options->file;
  if (name == "dbm")
    return options->kind = value, std::find(AnyOptions::kKinds.begin(), AnyOptions::kKinds.end(), value) != AnyOptions::kKinds.end();
  if (name == "order") return options->order = value, !value.empty();
  if (name == "log_archive") return options->log_archive = value, !value.empty();
  if (name == "codec") return options->codec = value, !value.empty();
  if (name == "expiry") return TakeFlag(value, &options->expiry);
  if (name == "raw") return TakeFlag(value, &options->raw);
  if (name == "huge_pages") return TakeFlag(value, &file.huge_pages);
  if (name == "block_cache_bytes") return TakeNumber(value, kMax, &file.cache_bytes);
  if (name == "direct") {
    if (!TakeFlag(value, &file.direct)) return false;
    if (file.direct) options->device = "pos";
    return true;
  }
  if (name == "file") return options->device = value, value == "mmap" || value == "pos";
  if (name == "mode") return TakeMode(value, &file.mode);
  if (name == "durability") return TakeDurability(value, &options->durability);
  if (name == "num_records") return TakeNumber(value, kMax, &options->num_records);
  if (name == "seed") return TakeNumber(value, kMax, &options->seed);
  if (name == "reserve_bytes") return TakeNumber(value, kMax, &file.reserve_bytes);
  if (name == "grow_min") return TakeNumber(value, kMax, &file.grow_min);
  if (name == "grow_max") return TakeNumber(value, kMax, &file.grow_max);
  if (name == "align_pow") return TakeNumber(value, 63, &options->align_pow.emplace());
  if (name == "page_size") return TakeNumber(value, std::numeric_limits<int>::max(), &options->page_size.emplace());
  if (name == "width") return TakeNumber(value, std::numeric_limits<int>::max(), &options->width.emplace());
  if (name == "max_bytes") return TakeNumber(value, kMax, &options->max_bytes.emplace());
  if (name == "cache_bytes") return TakeNumber(value, kMax, &options->cache_bytes.emplace());
  if (name == "capacity_bytes") return TakeNumber(value, kMax, &options->capacity_bytes);
  if (name == "capacity_records") return TakeNumber(value, kMax, &options->capacity_records);
  if (name == "reclaim_bytes") return TakeNumber(value, kMax, &options->reclaim_bytes.emplace());
  if (name == "unproven") return TakeUnproven(value, &options->unproven_updates);
  if (name == "reader_bytes") return TakeNumber(value, kMax, &options->reader_bytes.emplace());
  if (name == "checkpoint_bytes") return TakeNumber(value, kMax, &options->checkpoint_bytes.emplace());
  if (name == "log_bytes") return TakeNumber(value, kMax, &options->log_bytes.emplace());
  if (name == "snapshot_bytes") return TakeNumber(value, kMax, &options->snapshot_bytes.emplace());
  if (name == "sync_interval") {
    std::int64_t milliseconds = 0;
    if (!TakeNumber(value, 1'000'000'000, &milliseconds)) return false;
    options->sync_interval = std::chrono::milliseconds(milliseconds);
    return true;
  }
  if (name == "reader_age") {
    std::int64_t milliseconds = 0;
    if (!TakeNumber(value, 1'000'000'000'000, &milliseconds)) return false;
    options->reader_age = std::chrono::milliseconds(milliseconds);
    return true;
  }
  if (name == "wait") {
    std::int64_t seconds = 0;
    if (!TakeNumber(value, 1'000'000'000, &seconds)) return false;
    file.lock_timeout = std::chrono::seconds(seconds);
    return true;
  }
  return std::nullopt;
}

}  // namespace

std::string_view AnyOptions::ResolvedKind() const {
  if (kind != kAuto) return kind;
  if (path.ends_with(".hkh")) return kHash;
  if (path.ends_with(".hkt") || path.ends_with(".hktb")) return kTree;
  if (path.ends_with(".hka")) return kArray;
  if (path.ends_with(".hks")) return kTiny;
  return {};
}

TreeOptions TreeOptionsOf(const AnyOptions& options) {
  TreeOptions tree;
  internal::TakeSharedOptions(options, &tree);
  tree.page_size = options.page_size.value_or(tree.page_size);
  tree.raw = options.raw;
  return tree;
}

HashOptions HashOptionsOf(const AnyOptions& options) {
  HashOptions hash;
  internal::TakeSharedOptions(options, &hash);
  hash.num_records = options.num_records;
  hash.align_pow = options.align_pow.value_or(hash.align_pow);
  hash.seed = options.seed;
  hash.keep_log = options.keep_log;
  hash.unproven_updates = options.unproven_updates;
  hash.reclaim_bytes = options.reclaim_bytes.value_or(hash.reclaim_bytes);
  return hash;
}

ArrayOptions ArrayOptionsOf(const AnyOptions& options) {
  ArrayOptions array;
  internal::TakeSharedOptions(options, &array);
  array.width = options.width.value_or(array.width);
  return array;
}

StatusOr<AnyOptions> ParseAnyOptions(StringArg name, AnyOptions defaults) {
  AnyOptions options = std::move(defaults);
  const std::size_t mark = name.rfind('?');
  options.path = name.substr(0, mark);
  std::string_view rest = mark == name.npos ? std::string_view() : name.substr(mark + 1);
  bool maps = false;  // whether an option says so
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == item.npos ? std::string_view() : item.substr(equals + 1);
    const std::optional<bool> taken = Take(key, value, &options);
    if (key == "file") maps = value == "mmap";
    if (!taken) return absl::InvalidArgumentError(absl::StrCat("unknown option '", ToAbsl(key), "'; ", ToAbsl(kThereAre)));
    if (!*taken) return absl::InvalidArgumentError(absl::StrCat("invalid value '", ToAbsl(value), "' of option ", ToAbsl(key)));
  }
  if (maps && options.file.direct) return absl::InvalidArgumentError("option direct requires file=pos, not file=mmap");
  return options;
}

}  // namespace hako
