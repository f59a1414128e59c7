// The command scrub: runs one pass of Scrub over the file of a database, at a limited rate if
// wanted.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/output.h"
#include "tool/progress.h"

namespace hako::tool {
namespace {

using Clock = std::chrono::steady_clock;

struct ScrubCommandOptions {
  DatabaseOptions database;
  std::int64_t rate = 0;  // bytes a second; 0 = unlimited
  bool json = false;
};

void AppendDamage(const ScrubProgress::Damage& damage, std::string* out) {
  absl::StrAppend(out, "damaged: ", ToAbsl(NameOf(damage.kind)), " at offset ", damage.offset);
  if (damage.size != 0) absl::StrAppend(out, ", ", damage.size, " bytes");
  absl::StrAppend(out, ": ", damage.error.message(), "\n");
}

nlohmann::ordered_json ToJson(const ScrubProgress::Damage& damage) {
  return {{"kind", std::string(NameOf(damage.kind))},
          {"offset", damage.offset},
          {"size", damage.size},
          {"error", std::string(damage.error.message())}};
}

// Runs a pass, and adds its findings to `total`.
template <class Db>
Status ScrubPass(const ScrubCommandOptions& options, Db& db, Output* output, ScrubProgress* total) {
  ScrubOptions step;
  const auto rate = static_cast<std::uint64_t>(options.rate);
  if (rate != 0) step.max_bytes = std::clamp<std::uint64_t>(rate / 4, 64 << 10, step.max_bytes);
  const Clock::time_point begin = Clock::now();
  while (!total->is_complete) {
    HAKO_ASSIGN_OR_RETURN(ScrubProgress progress, db.Scrub(step));
    total->read_bytes += progress.read_bytes;
    total->is_complete = progress.is_complete;
    for (ScrubProgress::Damage& damage : progress.damage) {
      if (!options.json) AppendDamage(damage, output->buffer());
      total->damage.push_back(std::move(damage));
    }
    if (!options.json && !progress.damage.empty()) HAKO_RETURN_IF_ERROR(output->Flush());
    if (rate != 0 && !total->is_complete) {
      const double seconds = static_cast<double>(total->read_bytes) / static_cast<double>(rate);
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
    }
  }
  return absl::OkStatus();
}

int RunScrub(const ScrubCommandOptions& options) {
  Output output(STDOUT_FILENO);
  const int code = WithFile(options.database, [&](auto& db) -> int {
    ScrubProgress total;
    const Status status = [&] {
      const Ticker ticker(absl::StrCat("scrubbing ", CountOf(db)));
      return ScrubPass(options, db, &output, &total);
    }();
    if (!status.ok()) return FailDatabase(options.database, status);
    const bool ok = total.damage.empty();
    if (options.json) {
      nlohmann::ordered_json root = {{"file", options.database.path()}, {"ok", ok}, {"read_bytes", total.read_bytes}};
      root["damage"] = nlohmann::ordered_json::array();
      for (const ScrubProgress::Damage& damage : total.damage) root["damage"].push_back(ToJson(damage));
      output.buffer()->append(root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).append("\n");
    } else {
      absl::StrAppend(output.buffer(), isatty(STDOUT_FILENO) == 1 ? Displayed(options.database.path()) : options.database.path(),
                      ok ? ": ok, " : absl::StrCat(": ", total.damage.size(), " damaged, "), total.read_bytes, " bytes read\n");
    }
    return ok ? kExitDone : kExitNo;
  });
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  return code;
}

}  // namespace

void AddScrubCommand(Commands& commands) {
  const auto options = std::make_shared<ScrubCommandOptions>();
  CLI::App* app = commands.Add("scrub", "Check a file on its device, a piece at a time, and list all damage; exit code 1 if there is any",
                               [options] { return RunScrub(*options); });
  options->database.on_damage = kExitNo;
  AddDatabaseOptions(app, &options->database, Access::kRead);
  AddNumber(app, "--rate", &options->rate, "Read at most N bytes a second, 0 = as fast as possible", 0, std::int64_t{1} << 50);
  app->add_flag("--json", options->json, "One JSON object: file, ok, read_bytes, damage: kind, offset, size, error");
}

}  // namespace hako::tool
