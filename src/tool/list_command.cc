// The commands list and search: records in the order in which the database holds them.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "hako/array/record_key.h"
#include "hako/base/comparator.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/search.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/numbers.h"
#include "tool/output.h"

namespace hako::tool {
namespace {

struct ListOptions {
  DatabaseOptions database;
  StyleOptions style;
  UnescapeOption unescape;
  DamageSkipper damage;
  std::int64_t items = isatty(STDOUT_FILENO) == 1 ? 10 : -1;
  bool keys = false;
  std::string prefix, from, to;
  CLI::Option* has_from = nullptr;
  CLI::Option* has_to = nullptr;
  bool reverse = false;
  std::string move;
  std::string jump_key;
  CLI::Option* has_jump_key = nullptr;
};

void AddListOptions(CLI::App* app, ListOptions* options) {
  AddNumber(app, "--items", &options->items, "Maximum number of records, -1 = all; default 10 on a terminal, otherwise all", -1,
            std::numeric_limits<std::int64_t>::max());
  app->add_flag("--keys", options->keys, "Print keys without values");
  options->unescape.AddTo(app);
  options->style.AddTo(app);
  options->damage.AddTo(app);
}

enum class Wanted { kYes, kNo, kNoMore };

// Prints the records from `it` on whose keys are wanted, up to --items. Returns the exit code, and
// sets *is_cut if there were more.
int PrintRecords(ListOptions& options, AnyDBM::Iterator& it, const std::function<Wanted(std::string_view)>& wanted,
                 std::uint64_t* num_listed, bool* is_cut) {
  Output output(STDOUT_FILENO);
  const Interrupt interrupt;
  for (; options.damage.IsAtRecord(options.database, it) && output.ok() && interrupt.signal() == 0;
       options.reverse ? it.Previous() : it.Next()) {
    const Wanted is_wanted = wanted(it.key());
    if (is_wanted == Wanted::kNoMore) break;
    if (is_wanted == Wanted::kNo) continue;
    *is_cut = options.items >= 0 && *num_listed == static_cast<std::uint64_t>(options.items);
    if (*is_cut) break;
    options.style.Append(it.key(), options.keys ? std::nullopt : std::optional<std::string_view>(it.value()), output.buffer());
    output.MaybeFlush();
    ++*num_listed;
  }
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  if (interrupt.signal() != 0) return kExitSignal + interrupt.signal();
  return options.damage.Finish(options.database, it.status().ok() ? kExitDone : FailDatabase(options.database, it.status()));
}

// The range of keys selected by --prefix, --from and --to.
struct Bounds {
  std::string low;
  std::optional<std::string> high;  // exclusive; nullopt = no bound

  explicit Bounds(const ListOptions& options) : low(std::max(options.prefix, options.from)), high(EndOfPrefix(options.prefix)) {
    if (options.has_to->count() > 0 && (!high || options.to < *high)) high = options.to;
  }
};

// Moves to the record of --move; without it to the first record within the bounds, or with
// --reverse to the last.
void MoveToBegin(const ListOptions& options, const Bounds& bounds, bool is_ordered, AnyDBM::Iterator& it) {
  const std::string& move = options.move;
  if (move.starts_with("jumplower")) return it.JumpLower(options.jump_key, move == "jumplowerinc");
  if (move.starts_with("jumpupper")) return it.JumpUpper(options.jump_key, move == "jumpupperinc");
  if (move == "jump") return it.Jump(options.jump_key);
  if (move == "first" || !is_ordered) return it.First();
  if (!options.reverse) return it.Jump(bounds.low);
  bounds.high ? it.JumpLower(*bounds.high) : it.Last();
}

// Returns the given option that requires an ordered database; empty if there is none.
std::string OptionForOrder(const ListOptions& options) {
  if (options.reverse) return "--reverse";
  if (options.has_from->count() > 0) return "--from";
  if (options.has_to->count() > 0) return "--to";
  return options.move.starts_with("jump") && options.move != "jump" ? "--move " + options.move : "";
}

// Returns the name of the order of keys, from Inspect. Trees in memory have the bytewise order.
std::string OrderOf(AnyDBM& db) {
  for (const auto& [name, value] : db.Inspect()) {
    if (name == "comparator") return value;
  }
  return std::string(BytewiseComparator::kName);
}

int RunList(ListOptions options) {
  const std::string kind(options.database.any.ResolvedKind());
  const std::string for_order = OptionForOrder(options);
  if (!for_order.empty() && (kind == AnyOptions::kHash || kind == AnyOptions::kTiny)) {
    return FailUsage("list", absl::StrCat(options.database.path(), ": ", for_order, " requires an ordered database, and kind ", kind,
                                          " is not ordered; sort the output instead"));
  }
  if (!options.unescape.Apply({&options.prefix, &options.from, &options.to, &options.jump_key}))
    return FailUsage("list", UnescapeOption::kMalformed);
  const bool jumps = options.move.starts_with("jump");
  if (jumps != (options.has_jump_key->count() > 0)) return FailUsage("list", "--move jump... and --jump_key require each other");
  const Bounds bounds(options);
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    std::uint64_t num_listed = 0;
    bool is_cut = false;
    const bool is_by_number = db.IsOrdered() && OrderOf(db) == RecordKeyComparator::kName && options.prefix.empty();
    const bool has_known_order = is_by_number || (db.IsOrdered() && OrderOf(db) == BytewiseComparator::kName);
    const auto compare = is_by_number ? &RecordKeyComparator::Compare : &BytewiseComparator::Compare;
    if (db.IsOrdered() && !has_known_order && (options.has_from->count() > 0 || options.has_to->count() > 0)) {
      return FailUsage("list", absl::StrCat(options.database.path(),
                                            ": --from and --to require bytewise order, or an array, and this database has the order '",
                                            OrderOf(db), "'"));
    }
    const auto wanted = [&](std::string_view key) {
      const bool is_below = compare(key, bounds.low) < 0, is_above = bounds.high && compare(key, *bounds.high) >= 0;
      if (!is_below && !is_above) return Wanted::kYes;
      return has_known_order && (options.reverse ? is_below : is_above) ? Wanted::kNoMore : Wanted::kNo;
    };
    const int code = WithMoment(options.database, db, [&](AnyDBM& shown) -> int {
      auto it = shown.MakeIterator();
      if (options.reverse && !has_known_order && options.move.empty())
        it.Last();
      else
        MoveToBegin(options, bounds, has_known_order, it);
      if (jumps && !it.Valid() && it.status().ok()) {
        Note(absl::StrCat(options.database.path(), ": no record at the key to jump to"));
        return kExitNo;
      }
      return PrintRecords(options, it, wanted, &num_listed, &is_cut);
    });
    if (is_cut && (!bounds.low.empty() || bounds.high)) {
      Note(absl::StrCat(options.database.path(), ": the first ", GroupDigits(num_listed), "; --items -1 lists all"));
    } else if (is_cut) {
      Note(absl::StrCat(options.database.path(), ": ", GroupDigits(num_listed), " of ", CountOfRecords(db.Count()),
                        "; --items -1 lists all"));
    }
    return code;
  });
}

struct SearchOptions : ListOptions {
  std::string mode = "contain";
  std::string pattern;
};

// Prints the nearest keys, which it finds by a scan of all keys.
int PrintNearest(const SearchOptions& options, AnyDBM& db) {
  if (options.items == 0) return kExitDone;
  const auto keys = Search(db, SearchMode::kEdit, options.pattern, options.items < 0 ? 0 : static_cast<std::size_t>(options.items));
  if (!keys.ok()) return FailDatabase(options.database, keys.status());
  Output output(STDOUT_FILENO);
  std::string value;
  for (const std::string& key : *keys) {
    if (const Status got = db.Get(key, &value); !got.ok()) return FailDatabase(options.database, got);
    options.style.Append(key, options.keys ? std::nullopt : std::optional<std::string_view>(value), output.buffer());
    output.MaybeFlush();
  }
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  return keys->empty() ? kExitNo : kExitDone;
}

int RunSearch(SearchOptions options) {
  const SearchMode mode = *SearchModeOfName(options.mode);
  if (mode != SearchMode::kRegex && !options.unescape.Apply({&options.pattern})) return FailUsage("search", UnescapeOption::kMalformed);
  const StatusOr<KeyMatcher> matcher = KeyMatcher::Make(mode, options.pattern);
  if (!matcher.ok()) return FailUsage("search", std::string(matcher.status().message()));
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    if (mode == SearchMode::kEdit) return WithMoment(options.database, db, [&](AnyDBM& shown) { return PrintNearest(options, shown); });
    std::uint64_t num_listed = 0;
    bool is_cut = false;
    const auto wanted = [&](std::string_view key) { return (*matcher)(key) ? Wanted::kYes : Wanted::kNo; };
    const int code = WithMoment(options.database, db, [&](AnyDBM& shown) {
      auto it = shown.MakeIterator();
      it.First();
      return PrintRecords(options, it, wanted, &num_listed, &is_cut);
    });
    if (is_cut) Note(absl::StrCat(options.database.path(), ": the first ", GroupDigits(num_listed), "; --items -1 finds all"));
    return code == kExitDone && num_listed == 0 && options.items != 0 ? kExitNo : code;
  });
}

}  // namespace

void AddListCommand(Commands& commands) {
  const auto options = std::make_shared<ListOptions>();
  options->database.for_tables = "'hako table query' lists rows, as by \"select * limit 10\"";
  CLI::App* app = commands.Add("list",
                               "Print records, of an ordered database (tree, array, baby) in key order and as of one moment; of a hash "
                               "table, a record that expires meanwhile may be listed or not",
                               [options] { return RunList(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  AddChoice(app, "--move", &options->move, {"first", "jump", "jumplower", "jumplowerinc", "jumpupper", "jumpupperinc"},
            "Where to begin: at the first record or at --jump_key; in ordered databases also below or above it, or (inc) at it");
  options->has_jump_key = app->add_option("--jump_key", options->jump_key, "With --move jump...: the key where to begin")->type_name("KEY");
  app->add_option("--prefix", options->prefix, "Only records whose key begins with TEXT; unordered databases are scanned in full")
      ->type_name("TEXT");
  options->has_from =
      app->add_option("--from", options->from, "Only records from KEY on; for ordered databases (tree, array, baby)")->type_name("KEY");
  options->has_to =
      app->add_option("--to", options->to, "Only records before KEY, which is excluded; for ordered databases (tree, array, baby)")
          ->type_name("KEY");
  app->add_flag("--reverse", options->reverse,
                "In descending order, by default from the last record on; for ordered databases (tree, array, baby)");
  AddListOptions(app, options.get());
}

void AddSearchCommand(Commands& commands) {
  const auto options = std::make_shared<SearchOptions>();
  options->database.for_tables = "'hako table query' searches rows, as by \"select * where name contains 'x'\"";
  CLI::App* app = commands.Add("search", "Print records whose keys match a pattern; exit code 1 if none does",
                               [options] { return RunSearch(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  app->add_option("PATTERN", options->pattern, "The pattern")->required()->type_name("");
  AddChoice(app, "--mode", &options->mode, {"contain", "begin", "end", "regex", "edit"},
            "Keys that contain, begin with or end with PATTERN, or match it, a regular expression of RE2; or those at the smallest edit "
            "distance");
  AddListOptions(app, options.get());
}

}  // namespace hako::tool
