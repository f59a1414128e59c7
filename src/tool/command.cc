#include "tool/command.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "hako/base/parse_number.h"
#include "hako/text/text_encoding.h"
#include "tool/terminal.h"
#include "tool/times.h"

namespace hako::tool {
namespace {

bool HasFolder(std::string_view file) {
  std::error_code ignored;
  const auto folder = std::filesystem::path(file).parent_path();
  return folder.empty() || std::filesystem::is_directory(folder, ignored);
}

bool IsDirectory(std::string_view file) {
  std::error_code ignored;
  return std::filesystem::is_directory(std::filesystem::path(file), ignored);
}

bool IsEmpty(std::string_view file) {
  std::error_code ignored;
  return std::filesystem::file_size(std::filesystem::path(file), ignored) == 0 && !ignored;
}

// Removes the file's name from a message, because the name is printed before the message anyway.
// The library may have used the absolute name.
std::string WithoutName(std::string_view file, std::string message) {
  std::error_code ignored;
  const std::string full = std::filesystem::absolute(std::filesystem::path(file), ignored).lexically_normal();
  for (const std::string& name : {std::string(file), full}) {
    if (name.empty()) continue;
    if (message.starts_with(absl::StrCat(name, ": "))) message.erase(0, name.size() + 2);
    if (message.starts_with(absl::StrCat(name, " "))) message.erase(0, name.size() + 1);
    message = absl::StrReplaceAll(message, {{absl::StrCat(" for ", name, ":"), ":"},
                                            {absl::StrCat(" of ", name, ":"), ":"},
                                            {absl::StrCat(" of ", name, " "), " "},
                                            {absl::StrCat(" ", name, ":"), ":"}});
  }
  return message;
}

// Whether a message ends with the system's text for an error such as ENOENT.
bool Ends(std::string_view message, int error) { return message.ends_with(std::strerror(error)); }

// Returns the way out of an error whose message names none. Returns an empty text if the cause is
// unknown, because wrong advice is worse than none.
std::string_view Advice(std::string_view file, std::string_view message) {
  if (message.find("; ") != message.npos) return "";  // the message has it
  if (Ends(message, ENOENT) || message.find("there is no directory") != message.npos)
    return "check the name, or create the directory first";
  if (Ends(message, EIO)) return "check the disk and the system's log";
  struct statvfs system;
  if (statvfs(std::string(file).c_str(), &system) == 0 && (system.f_flag & ST_RDONLY) != 0) return "its file system is mounted read-only";
  return "";
}

// Returns the error and the way out.
std::pair<std::string, std::string> Explain(std::string_view file, const Status& status) {
  if (IsDirectory(file)) return {"is a directory", "give the name of a file in it"};
  if (!HasFolder(file)) return {"no such directory", "check the name, or create the directory first"};
  const std::string message = WithoutName(file, std::string(status.message()));
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return {"locked: another process has it open", "wait for it with --wait SECONDS, or end the other process"};
    case absl::StatusCode::kNotFound:
      return {"no such file", absl::StrCat("check the name, or create it with 'hako create ", ToAbsl(file), "'")};
    case absl::StatusCode::kAlreadyExists:
      return {"the file exists", "choose another name, or empty it with --truncate"};
    case absl::StatusCode::kPermissionDenied:
      if (Ends(message, EROFS)) return {message, "mount the file system for writing"};
      return {message, "check the permissions of the file and of its directory"};
    case absl::StatusCode::kResourceExhausted:
      return {message, "free some space, or raise the limit, and run the command again"};
    case absl::StatusCode::kDataLoss:
      if (IsEmpty(file)) return {"the file is empty, not a database", absl::StrCat("create one with 'hako create ", ToAbsl(file), "'")};
      if (file.ends_with(".hks")) return {absl::StrCat("damaged: ", message), "keep the file, and restore a copy"};  // no salvage exists
      return {absl::StrCat("damaged: ", message), "keep the file, and restore a copy, or save the rest with 'hako salvage'"};
    case absl::StatusCode::kUnimplemented:
      return {message, message.find("format") == message.npos ? "" : "use a version of hako that reads this format"};
    default:
      return {message, std::string(Advice(file, message))};
  }
}

std::string ProgramName(std::string_view command) { return absl::StrCat("hako", command.empty() ? "" : " ", ToAbsl(command)); }

}  // namespace

std::string Displayed(std::string_view text) {
  std::string line;
  text::AppendPrintable(text, &line, /*escapes_backslash=*/false);
  return line;
}

void Note(std::string_view message, std::string_view command) {
  std::fprintf(stderr, "%s: %s\n", ProgramName(command).c_str(), Displayed(message).c_str());
}

void Complain(std::string_view message, std::string_view command) {
  if (!WantsColor(STDERR_FILENO)) return Note(message, command);
  std::fprintf(stderr, "%s%s:%s %s\n", kErrorColor.data(), ProgramName(command).c_str(), kNoColor.data(), Displayed(message).c_str());
}

int Fail(std::string_view file, const Status& status, std::string_view advice) {
  if (status == ClosedPipe()) return kExitSignal + SIGPIPE;
  const auto [what, way_out] = Explain(file, status);
  const std::string_view shown = way_out.empty() && what.find("; ") == what.npos ? advice : std::string_view(way_out);
  Complain(absl::StrCat(ToAbsl(file), ": ", what, shown.empty() ? "" : "; ", ToAbsl(shown)));
  return absl::IsUnavailable(status) ? kExitLocked : kExitFile;
}

int FailUsage(std::string_view command, std::string_view mistake) {
  Complain(mistake, command);
  std::fprintf(stderr, "Try 'hako help%s%.*s'; an argument that begins with - goes after --\n", command.empty() ? "" : " ",
               static_cast<int>(command.size()), command.data());
  return kExitUsage;
}

Status WriteError(int error) { return error == EPIPE ? ClosedPipe() : SystemError(error, "cannot write"); }

CLI::App* Commands::Add(const std::string& name, const std::string& summary, std::function<int()> run, CLI::App* parent) {
  CLI::App* app = (parent != nullptr ? parent : root_)->add_subcommand(name, summary);
  runs_[app] = std::move(run);
  return app;
}

CLI::Option* AddNumber(CLI::App* app, const std::string& name, std::int64_t* number, const std::string& description, std::int64_t min,
                       std::int64_t max) {
  const auto parse = [name, number, min, max](const CLI::results_t& results) {
    const auto parsed = ParseNumber(results[0]);
    if (!parsed) throw CLI::ValidationError(name, absl::StrCat("'", results[0], "' is not a number such as 8, 10k or 64Mi"));
    if (*parsed < min || *parsed > max) throw CLI::ValidationError(name, absl::StrCat(results[0], " is out of range, ", min, " to ", max));
    *number = *parsed;
    return true;
  };
  return app->add_option(name, parse, description)->type_name("N")->expected(1);
}

CLI::Option* AddSeconds(CLI::App* app, const std::string& name, std::function<void(double)> store, const std::string& description) {
  const auto parse = [name, store = std::move(store)](const CLI::results_t& results) {
    constexpr std::uint64_t kSecond = 1'000'000, kMax = 1'000'000 * kSecond;
    const auto duration = ParseDuration(results[0], kSecond);
    if (!duration || *duration > kMax)
      throw CLI::ValidationError(
          name, absl::StrCat("'", results[0], "' is not a number of seconds, 0 to 1000000, or a duration such as ", kDurationExamples));
    store(static_cast<double>(*duration) / static_cast<double>(kSecond));
    return true;
  };
  return app->add_option(name, parse, description)->option_text("SECONDS")->expected(1);
}

CLI::Option* AddChoice(CLI::App* app, const std::string& name, std::string* choice, const std::vector<std::string>& words,
                       const std::string& description) {
  return app->add_option(name, *choice, description)->check(CLI::IsMember(words))->option_text(absl::StrJoin(words, "|"));
}

}  // namespace hako::tool
