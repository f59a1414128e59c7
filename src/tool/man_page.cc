// The command man: the manual page hako(1) in man(7) macros, made from the command table.
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "hako/version.h"
#include "tool/command.h"
#include "tool/command_table.h"

namespace hako::tool {
namespace {

// Escapes text so that troff shows it literally. The text must not begin a line of the page.
std::string Plain(std::string_view text) {
  return absl::StrReplaceAll(ToAbsl(text), {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"^", "\\(ha"}, {"`", "\\(ga"}, {"~", "\\(ti"}});
}

std::string Bold(std::string_view text) { return absl::StrCat("\\fB", Plain(text), "\\fR"); }
std::string Italic(std::string_view text) { return absl::StrCat("\\fI", Plain(text), "\\fR"); }

void AppendItem(const std::string& head, std::string_view text, std::string* page) {
  absl::StrAppend(page, ".TP\n", head, "\n", Plain(text), ".\n");
}

std::string OptionHead(const OptionRow& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(option.is_positional ? Italic(name) : Bold(name));
  std::string head = absl::StrJoin(names, ", ");
  if (!option.words.empty()) {
    absl::StrAppend(&head, " ", Plain(absl::StrJoin(option.words, "|")));
  } else if (!option.value.empty()) {
    absl::StrAppend(&head, " ", Italic(option.value));
  }
  return head;
}

void AppendCommand(const CommandRow& command, std::string* page) {
  std::string synopsis = absl::StrCat("hako ", command.name);
  std::string arguments;
  for (const OptionRow& option : command.options) {
    if (!option.is_positional) continue;
    const std::string name = absl::StrCat(Italic(option.names[0]), option.is_many ? "..." : "");
    absl::StrAppend(&arguments, " ", option.is_required ? name : absl::StrCat("[", name, "]"));
  }
  absl::StrAppend(page, ".SS ", Bold(synopsis), arguments, command.below.empty() ? "" : absl::StrCat(" ", Italic("COMMAND")), "\n",
                  Plain(command.summary), ".\n");
  for (const OptionRow& option : command.options) {
    if (option.names.back() != "--help") AppendItem(OptionHead(option), option.description, page);
  }
}

struct Line {
  std::string_view name, meaning;
};
constexpr Line kExitCodes[] = {{"0", "Done"},
                               {"1", "No: the key is absent, verify found damage, salvage lost records, rebuild was not needed"},
                               {"2", "Wrong usage"},
                               {"3", "A file could not be opened, read or written"},
                               {"4", "Another process has the database open"},
                               {"128 + N", "Stopped by signal N; 130 for Ctrl-C. Changes made until then are in the database"}};
constexpr Line kEnvironment[] = {{"NO_COLOR", "If set and not empty, output to a terminal has no colours"},
                                 {"TERM", "If dumb, output has no colours either"},
                                 {"HAKO_HISTORY",
                                  "The file that stores the lines of 'hako shell', default ~/.hako_history; "
                                  "empty for none. Lines that begin with a blank are not stored"}};
constexpr Line kExamples[] = {
    {"hako import packages.hkh packages.tsv", "Create a database from lines of key, tab, value"},
    {"hako get packages.hkh bash", "Look a key up"},
    {"hako list packages.hkh --items -1 --json | jq .key", "All records as JSON Lines"},
    {"hako list packages.hkh --prefix lib --items -1", "The records whose keys begin with lib"},
    {"hako list days.hkt --from 2024-03 --to 2024-05 --items -1", "The records from one key to another, of an ordered database"},
    {"hako list days.hkt --reverse --items 5", "The last five records of an ordered database"},
    {"hako get packages.hkh '\\x00\\xff' --unescape", "Look up a key that an argument cannot hold"},
    {"printf 'set a 1\\nset b 2\\n' | hako shell db.hkh", "Run several commands and open the database once"},
    {"hako copy packages.hkh backup.hkh && hako verify backup.hkh", "Back up, and check the copy"},
    {"hako table query people.hktb 'select name where age >= ?' 20", "The rows of a table that meet a condition"},
    {"hako set cache.hkh key value --ttl 5m", "A record that expires, of a database made with '?expiry=true'"},
    {"hako inspect packages.hkt --plot", "Draw the sizes of keys and values, the fill of pages and the free space"},
    {"hako stat db.hkt --watch", "Watch a tree while another process writes it"},
    {"mdb_dump -n old.mdb | hako import new.hkh - --format dump", "Import a database of LMDB; db_dump does the same for Berkeley DB"},
    {"hako perf sequence --path perf.hkh --iter 1m --honest", "Measure the speed"}};

std::string ManPage(const CLI::App& root) {
  const std::vector<CommandRow> table = CommandTable(root);
  std::string page = absl::StrCat(".TH HAKO 1 \"\" \"hako ", HAKO_VERSION_STRING, "\" \"User Commands\"\n.SH NAME\nhako \\- ",
                                  "create, query, load and check embedded key\\-value databases\n.SH SYNOPSIS\n.B hako\n.I COMMAND\n[",
                                  Italic("OPTIONS"), "] ", Italic("FILE"), " ...\n.SH DESCRIPTION\n");
  absl::StrAppend(
      &page, "A database of hako is one file that maps keys to values, both byte strings. Data goes to standard output, everything ",
      "else to standard error. Numbers may have a suffix: k, m, g, t for powers of 1000, ki, mi, gi, ti for powers of 1024. Durations are ",
      "written as 250ms, 60s, 5m, 2h or 7d, times as 2026\\-11\\-25T07:07Z, with seconds, with an offset such as +01:00 for the Z, or as @ "
      "and ",
      "seconds since 1970; what a plain number counts, each option says. An argument that begins with \\- goes after \\-\\-.\n.SH "
      "DATABASES\n",
      Italic("FILE"), " is the name of a file: ", Bold(".hkh"), " is a hash table in that file, ", Bold(".hkt"),
      " a tree, whose records are ordered by key, ", Bold(".hka"),
      " an array of records of one width, whose keys are their numbers in decimal (", Plain("'db.hka?width=8'"), " creates one), ",
      Bold(".hks"), " the snapshot of a hash table in memory, or with ", Bold("--dbm baby"),
      " of a tree in memory, loaded and saved whole; ", Bold(".hktb"),
      " a table of rows, for 'hako table' and the commands on whole files. ", "Options may follow after a question mark, as in ",
      Plain("'db.hkh?num_records=1m,file=pos'"),
      ": dbm, file, wait, num_records, align_pow, seed, page_size, max_bytes, width, cache_bytes, checkpoint_bytes, reader_bytes, "
      "reader_age, "
      "log_bytes, snapshot_bytes, "
      "log_archive, expiry, capacity_bytes, capacity_records, "
      "durability, "
      "sync_interval, reclaim_bytes, unproven, order, codec, raw, direct, huge_pages, block_cache_bytes, reserve_bytes, grow_min, "
      "grow_max. Options "
      "of "
      "the command "
      "win.\n");
  page.append(".SH COMMANDS\n");
  for (const CommandRow& command : table) {
    if (!command.name.empty()) AppendCommand(command, &page);
  }
  page.append(".SH EXIT STATUS\n");
  for (const auto& [code, meaning] : kExitCodes) AppendItem(Plain(code), meaning, &page);
  page.append(".SH ENVIRONMENT\n");
  for (const auto& [name, meaning] : kEnvironment) AppendItem(Bold(name), meaning, &page);
  page.append(".SH EXAMPLES\n");
  for (const auto& [line, meaning] : kExamples) AppendItem(Bold(line), meaning, &page);
  page.append(".SH SEE ALSO\n.BR mdb_dump (1),\n.BR db_dump (1)\n");
  return page;
}

}  // namespace

void AddManCommand(Commands& commands) {
  commands.Add("man", "Print the manual page: hako man | man -l -", [&commands] {
    std::fputs(ManPage(commands.root()).c_str(), stdout);
    return kExitDone;
  });
}

}  // namespace hako::tool
