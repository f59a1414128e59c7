// Commands on single records: get, set, remove, rekey, expire.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/text/json_record.h"
#include "hako/text/text_encoding.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/output.h"
#include "tool/text_file.h"
#include "tool/times.h"

namespace hako::tool {
namespace {

// Prints on stderr the key that is absent (or, for set, present). This is not an error: scripts use
// the exit code.
int SayNo(const DatabaseOptions& database, std::string_view key, std::string_view what) {
  std::string line = absl::StrCat(database.path(), ": ", ToAbsl(what), " '");
  text::AppendPrintable(key, &line);
  Note(line.append("'"));
  return kExitNo;
}

// Formats "KEY..." in the usage line without the limit of AddKeys.
class UsageFormatter : public CLI::Formatter {
 public:
  std::string make_option_usage(const CLI::Option* option) const override {
    return option->get_expected_min() > 1 ? option->get_name(true) + "..." : CLI::Formatter::make_option_usage(option);
  }
};

// Adds the positional KEY..., whose words are taken literally. CLI11 would read "[a,b]" as a list
// if an option took any number of arguments, so the option gets a limit that no command line
// reaches.
CLI::Option* AddKeys(CLI::App* app, std::vector<std::string>* keys, const char* description) {
  const auto store = [keys](const CLI::results_t& results) {
    *keys = results;
    return true;
  };
  app->formatter(std::make_shared<UsageFormatter>());
  return app->add_option("KEY", store, description)
      ->required()
      ->option_text("... REQUIRED")
      ->expected(1 << 28)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

struct GetOptions {
  DatabaseOptions database;
  StyleOptions style;
  UnescapeOption unescape;
  std::vector<std::string> keys;
  bool multi = false;
};

int RunGet(GetOptions options) {
  for (std::string& key : options.keys) {
    if (!options.unescape.Apply({&key})) return FailUsage("get", UnescapeOption::kMalformed);
  }
  if (!options.multi && options.keys.size() > 1) return FailUsage("get", "several keys require --multi");
  return WithDatabase(options.database, [&options](AnyDBM& db) -> int {
    Output output(STDOUT_FILENO);
    const bool with_key = options.multi || options.style.style() == RecordStyle::kJson;
    int code = kExitDone;
    std::string value;
    for (const std::string& key : options.keys) {
      const Status status = db.Get(key, &value);
      if (absl::IsNotFound(status)) {
        code = SayNo(options.database, key, "no record of key");
        continue;
      }
      if (!status.ok()) return FailDatabase(options.database, status);
      if (options.style.is_raw() && !options.multi) {
        options.style.AppendValue(value, output.buffer());
      } else {
        options.style.Append(with_key ? std::optional<std::string_view>(key) : std::nullopt, value, output.buffer());
      }
      output.MaybeFlush();
    }
    const Status written = output.Flush();
    return written.ok() ? code : Fail("standard output", written);
  });
}

// The options that say when a record expires: --ttl and --expire_at.
struct TimeOptions {
  std::uint64_t ttl = 0, expire_at = 0;  // in milliseconds; 0 = not given

  void AddTo(CLI::App* app) {
    const auto take_ttl = [this](const CLI::results_t& results) {
      ttl = Checked("--ttl", results[0], ParseDuration(results[0], kMillisecond), "duration", kDurationExamples);
      return true;
    };
    const auto take_time = [this](const CLI::results_t& results) {
      expire_at = Checked("--expire_at", results[0], ParseTime(results[0], kMillisecond), "time", kTimeExamples);
      return true;
    };
    CLI::Option* const has_ttl =
        app->add_option("--ttl", take_ttl,
                        absl::StrCat("The record expires after this time, as ", kDurationExamples, "; a plain number counts milliseconds"))
            ->option_text("DURATION")
            ->expected(1);
    app->add_option("--expire_at,--expire-at", take_time,
                    absl::StrCat("The record expires at this time, as ", kTimeExamples, "; a plain number counts milliseconds since 1970"))
        ->option_text("TIME")
        ->expected(1)
        ->excludes(has_ttl);
  }
  bool IsGiven() const { return ttl != 0 || expire_at != 0; }
  std::optional<std::chrono::milliseconds> Ttl() const {
    return ttl != 0 ? std::optional(std::chrono::milliseconds(static_cast<std::int64_t>(ttl))) : std::nullopt;
  }

 private:
  static constexpr std::uint64_t kMillisecond = 1000;

  // Converts microseconds to milliseconds. Checks that the result is at least 1 and a time that a
  // record can have.
  static std::uint64_t Checked(const char* option, const std::string& text, std::optional<std::uint64_t> microseconds, const char* kind,
                               const char* examples) {
    if (!microseconds) throw CLI::ValidationError(option, absl::StrCat("'", text, "' is no ", kind, ", such as ", examples));
    const std::uint64_t milliseconds = *microseconds / kMillisecond;
    if (milliseconds < 1 || milliseconds > Expiry::kTimeMax)
      throw CLI::ValidationError(option, absl::StrCat(text, " is out of range, 1 ms to ", Expiry::kTimeMax, " ms"));
    return milliseconds;
  }
};

// Returns the way out if a time was given and the database keeps none.
std::string_view AdviceOnTimes(AnyDBM& db, const Status& status) {
  if (!absl::IsFailedPrecondition(status) || db.expiry() != nullptr) return "";
  return "create another with hako create 'NEW?expiry=true', and move the records by hako merge NEW OLD";
}

struct SetCommandOptions {
  DatabaseOptions database;
  UnescapeOption unescape;
  std::string key;
  std::string value;
  std::string delimiter;
  std::int64_t delta = 0;
  std::string value_file;
  CLI::Option* has_value = nullptr;
  CLI::Option* append = nullptr;
  CLI::Option* increment = nullptr;
  bool no_overwrite = false;
  TimeOptions time;
};

int Increment(const SetCommandOptions& options, AnyDBM& db) {
  const StatusOr<std::int64_t> sum = db.Increment(options.key, options.delta);
  if (!sum.ok()) return FailDatabase(options.database, sum.status());
  Output output(STDOUT_FILENO);
  absl::StrAppend(output.buffer(), *sum, "\n");
  const Status written = output.Flush();
  return written.ok() ? kExitDone : Fail("standard output", written);
}

// Reads the value, byte by byte as it is, from the file that VALUE or --value_file names. Returns
// the exit code.
int ReadValue(const std::string& file, std::string* value) {
  constexpr std::size_t kPiece = 64 << 10;
  if (IsStandardStream(file) && SharedDatabase::IsThere())
    return FailUsage("set", "the shell reads its commands from standard input; name a file");
  TextInput input;
  const Interrupt interrupt;
  Status status = input.Open(file);
  value->clear();
  for (std::size_t size = 0; status.ok() && size <= kValueSizeMax;) {
    value->resize(size + kPiece);
    const auto read = input.Read(interrupt, std::span(*value).subspan(size));
    size += read.value_or(0);
    value->resize(size);
    status = read.status();
    if (read.value_or(0) == 0) break;
  }
  if (interrupt.signal() != 0) return kExitSignal + interrupt.signal();
  return status.ok() ? kExitDone : FailText(input.name(), status);
}

int RunSet(SetCommandOptions options) {
  const bool has_value = options.has_value->count() > 0;
  const bool has_file = !options.value_file.empty();
  const bool increments = options.increment->count() > 0;
  if (increments && (has_value || has_file)) return FailUsage("set", "--incr excludes VALUE");
  if (has_value && has_file) return FailUsage("set", "--value_file excludes VALUE");
  if (!increments && !has_value && !has_file) return FailUsage("set", "VALUE is required");
  if (options.time.IsGiven() && (increments || options.append->count() > 0))
    return FailUsage("set", "--append and --incr keep the time of the record; 'hako expire' changes it");
  if (!options.unescape.Apply({&options.key, &options.value, &options.delimiter})) return FailUsage("set", UnescapeOption::kMalformed);
  if (has_file || (options.value == "-" && !options.unescape.is_given())) {
    if (const int code = ReadValue(has_file ? options.value_file : "-", &options.value); code != kExitDone) return code;
  }
  return WithDatabase(options.database, [&options, increments](AnyDBM& db) -> int {
    if (increments) return Increment(options, db);
    const Status status =
        options.append->count() > 0
            ? db.Append(options.key, options.value, options.delimiter)
            : db.Set(options.key, options.value,
                     {.overwrite = !options.no_overwrite, .ttl = options.time.Ttl(), .expire_at = options.time.expire_at});
    if (absl::IsAlreadyExists(status)) return SayNo(options.database, options.key, "--no_overwrite: a record exists of key");
    return status.ok() ? kExitDone : FailDatabase(options.database, status, options.time.IsGiven() ? AdviceOnTimes(db, status) : "");
  });
}

struct RemoveOptions {
  DatabaseOptions database;
  UnescapeOption unescape;
  std::vector<std::string> keys;
};

int RunRemove(RemoveOptions options) {
  for (std::string& key : options.keys) {
    if (!options.unescape.Apply({&key})) return FailUsage("remove", UnescapeOption::kMalformed);
  }
  return WithDatabase(options.database, [&options](AnyDBM& db) -> int {
    int code = kExitDone;
    for (const std::string& key : options.keys) {
      const Status status = db.Remove(key);
      if (absl::IsNotFound(status)) {
        code = SayNo(options.database, key, "no record of key");
      } else if (!status.ok()) {
        return FailDatabase(options.database, status);
      }
    }
    return code;
  });
}

struct RekeyOptions {
  DatabaseOptions database;
  UnescapeOption unescape;
  std::string old_key;
  std::string new_key;
  bool no_overwrite = false;
};

int RunRekey(RekeyOptions options) {
  if (!options.unescape.Apply({&options.old_key, &options.new_key})) return FailUsage("rekey", UnescapeOption::kMalformed);
  return WithDatabase(options.database, [&options](AnyDBM& db) -> int {
    const bool is_same = options.new_key == options.old_key;
    const Status status =
        is_same ? db.GetSize(options.old_key).status() : db.Rekey(options.old_key, options.new_key, {.overwrite = !options.no_overwrite});
    if (absl::IsNotFound(status)) return SayNo(options.database, options.old_key, "no record of key");
    if (absl::IsAlreadyExists(status)) return SayNo(options.database, options.new_key, "--no_overwrite: a record exists of key");
    return status.ok() ? kExitDone : FailDatabase(options.database, status);
  });
}

struct ExpireOptions {
  DatabaseOptions database;
  UnescapeOption unescape;
  std::string key;
  TimeOptions time;
  bool never = false;
  bool json = false;
};

Status ChangeTime(AnyDBM& db, std::string_view key, std::uint64_t ttl, std::uint64_t at) {
  if (db.expiry() == nullptr) return Expiry::NoTimesError();
  return db.SetExpiry(key, ttl != 0 ? db.expiry()->Now() + ttl : at);
}
Status RemoveTime(AnyDBM& db, std::string_view key) { return db.expiry() == nullptr ? Expiry::NoTimesError() : db.Persist(key); }

// Prints the time of the record if no new time is given.
int RunExpire(ExpireOptions options) {
  if (!options.unescape.Apply({&options.key})) return FailUsage("expire", UnescapeOption::kMalformed);
  const bool changes = options.never || options.time.IsGiven();
  if (!changes) options.database.any.file.mode = OpenMode::kReadOnly;
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    Status status;
    if (!changes) {
      const StatusOr<std::uint64_t> time = db.GetExpiry(options.key);
      status = time.status();
      Output output(STDOUT_FILENO);
      if (time.ok() && options.json) {
        output.buffer()->append("{\"key\":");
        text::AppendJsonBytes(options.key, output.buffer());
        absl::StrAppend(output.buffer(), ",\"expire_at\":", *time == Expiry::kNever ? "null" : absl::StrCat(*time), "}\n");
      } else if (time.ok()) {
        absl::StrAppend(output.buffer(), *time == Expiry::kNever ? "never" : FormatMilliseconds(*time), "\n");
      }
      if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
    } else if (options.never) {
      status = RemoveTime(db, options.key);
    } else {
      status = ChangeTime(db, options.key, options.time.ttl, options.time.expire_at);
    }
    if (absl::IsNotFound(status)) return SayNo(options.database, options.key, "no record of key");
    return status.ok() ? kExitDone : FailDatabase(options.database, status, changes ? AdviceOnTimes(db, status) : "");
  });
}

}  // namespace

void AddGetCommand(Commands& commands) {
  const auto options = std::make_shared<GetOptions>();
  options->database.for_tables = "'hako table get' prints a row";
  CLI::App* app = commands.Add("get", "Print the value of a key; exit code 1 if it is absent", [options] { return RunGet(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  AddKeys(app, &options->keys, "The key; several with --multi");
  app->add_flag("--multi", options->multi, "Take several keys, and print key and value of each that exists");
  options->unescape.AddTo(app);
  options->style.AddTo(app);
}

void AddSetCommand(Commands& commands) {
  const auto options = std::make_shared<SetCommandOptions>();
  options->database.for_tables = "'hako table put' stores a row";
  CLI::App* app = commands.Add("set", "Store a record", [options] { return RunSet(*options); });
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  app->add_option("KEY", options->key, "The key")->required()->type_name("");
  options->has_value =
      app->add_option("VALUE", options->value, "The value; - = standard input, to its end ('\\x2d' with --unescape is the value -)")
          ->type_name("");
  app->add_option("--value_file,--value-file", options->value_file, "Read the value from this file, unchanged")->type_name("FILE");
  CLI::Option* no_overwrite = app->add_flag("--no_overwrite", options->no_overwrite, "Keep an existing record; the exit code is then 1");
  options->append =
      app->add_option("--append", options->delimiter, "Append VALUE to the record, after DELIM if the record exists")->type_name("DELIM");
  options->increment = AddNumber(app, "--incr", &options->delta,
                                 "Add N to the record, an 8-byte big-endian number, and print the sum; 'get --number' prints it",
                                 std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  options->unescape.AddTo(app);
  options->time.AddTo(app);
  options->append->excludes(no_overwrite)->excludes(options->increment);
  options->increment->excludes(no_overwrite);
}

void AddRemoveCommand(Commands& commands) {
  const auto options = std::make_shared<RemoveOptions>();
  options->database.for_tables = "'hako table remove' removes a row";
  CLI::App* app = commands.Add("remove", "Remove records; exit code 1 if one is absent", [options] { return RunRemove(*options); });
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  AddKeys(app, &options->keys, "The keys");
  options->unescape.AddTo(app);
}

void AddRekeyCommand(Commands& commands) {
  const auto options = std::make_shared<RekeyOptions>();
  options->database.for_tables = "store the row under its new key by 'hako table put', and remove the old one";
  CLI::App* app =
      commands.Add("rekey", "Change the key of a record; exit code 1 if it is absent", [options] { return RunRekey(*options); });
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  app->add_option("OLD_KEY", options->old_key, "The present key")->required()->type_name("");
  app->add_option("NEW_KEY", options->new_key, "The new key")->required()->type_name("");
  options->unescape.AddTo(app);
  app->add_flag("--no_overwrite", options->no_overwrite, "Keep an existing record of the new key; the exit code is then 1");
}

void AddExpireCommand(Commands& commands) {
  const auto options = std::make_shared<ExpireOptions>();
  options->database.for_tables = "its rows do not expire";
  CLI::App* app = commands.Add("expire", "Print or change when a record expires; exit code 1 if it is absent",
                               [options] { return RunExpire(*options); });
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  app->add_option("KEY", options->key, "The key")->required()->type_name("");
  options->unescape.AddTo(app);
  options->time.AddTo(app);
  app->add_flag("--never", options->never, "The record never expires")->excludes("--ttl")->excludes("--expire_at");
  app->add_flag("--json", options->json, "One JSON object: key, expire_at in milliseconds since 1970, or null");
}

}  // namespace hako::tool
