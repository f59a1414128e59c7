// The command list: records in the order in which the database holds them.
#include <unistd.h>

#include <cstdio>
#include <limits>

#include "tool/command.h"
#include "tool/database.h"
#include "tool/numbers.h"
#include "tool/output.h"

namespace hako::tool {
namespace {

struct ListOptions {
  DatabaseOptions database;
  StyleOptions style;
  std::int64_t items = 10;
  bool keys = false;
};

int RunList(const ListOptions& options) {
  return WithDatabase(options.database, [&options](auto& db) -> int {
    Output output(STDOUT_FILENO);
    const RecordStyle style = options.style.style();
    std::int64_t num_listed = 0;
    auto it = db.MakeIterator();
    for (it.First(); it.Valid() && output.ok(); it.Next()) {
      if (num_listed == options.items) break;
      AppendRecord(style, it.key(), options.keys ? std::nullopt : std::optional<std::string_view>(it.value()), output.buffer());
      output.MaybeFlush();
      ++num_listed;
    }
    const bool is_cut = it.Valid();
    if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
    if (!it.status().ok()) return FailDatabase(options.database, it.status());
    if (is_cut) {
      std::fprintf(stderr, "hako: %s: %s of %s records; --items -1 lists all\n", options.database.path.c_str(),
                   GroupDigits(static_cast<std::uint64_t>(num_listed)).c_str(), GroupDigits(db.Count()).c_str());
    }
    return kExitDone;
  });
}

}  // namespace

void AddListCommand(Commands& commands) {
  const auto options = std::make_shared<ListOptions>();
  CLI::App* app = commands.Add("list", "Print records, in no order that means anything (hash)", [options] { return RunList(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  AddNumber(app, "--items", &options->items, "How many at most, 10 unless given; -1 = all", -1, std::numeric_limits<std::int64_t>::max());
  app->add_flag("--keys", options->keys, "Keys without values");
  options->style.AddTo(app);
}

}  // namespace hako::tool
