#include "tool/line_editor.h"

#ifndef HAKO_TOOL_HAS_EDIT

namespace hako::tool {
std::unique_ptr<LineEditor> LineEditor::Make(std::string_view, Complete) { return nullptr; }
}  // namespace hako::tool

#else

#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"
#include "tool/interrupt.h"

namespace hako::tool {
namespace {

std::string HistoryPath() {
  if (const char* path = std::getenv("HAKO_HISTORY"); path != nullptr) return path;
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? absl::StrCat(home, "/.hako_history") : "";
}

class LibEditor final : public LineEditor {
 public:
  LibEditor(std::string_view prompt, Complete complete)
      : prompt_(prompt), complete_(std::move(complete)), edit_(el_init("hako", stdin, stderr, stderr)), history_(history_init()) {
    if (edit_ == nullptr || history_ == nullptr) return;
    history(history_, &event_, H_SETSIZE, 1000);
    history(history_, &event_, H_SETUNIQUE, 1);
    if (!path_.empty()) history(history_, &event_, H_LOAD, path_.c_str());
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &Prompt);
    el_set(edit_, EL_GETCFN, &GetCharacter);
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_ADDFN, "hako-complete", "Complete the word", &CompleteWord);
    el_set(edit_, EL_BIND, "^I", "hako-complete", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(edit_, nullptr);  // reads ~/.editrc
  }
  ~LibEditor() override {
    if (edit_ != nullptr && history_ != nullptr && !path_.empty()) history(history_, &event_, H_SAVE, path_.c_str());
    if (history_ != nullptr) history_end(history_);
    if (edit_ != nullptr) el_end(edit_);
  }
  bool ok() const { return edit_ != nullptr && history_ != nullptr; }

  std::optional<std::string> Next() override {
    while (true) {
      const Interrupt interrupt;
      interrupt_ = &interrupt;
      el_resize(edit_);
      int size = 0;
      const char* typed = el_gets(edit_, &size);
      interrupt_ = nullptr;
      signal_ = interrupt.signal();
      if (typed != nullptr && size > 0 && signal_ == 0) {
        std::string line(typed, static_cast<std::size_t>(size));
        if (line.ends_with('\n')) line.pop_back();
        if (!line.empty() && line[0] != ' ') history(history_, &event_, H_ENTER, line.c_str());
        return line;
      }
      if (signal_ != SIGINT) return std::nullopt;
      el_reset(edit_);
      std::fputs("^C\n", stderr);
      signal_ = 0;
    }
  }
  int signal() const override { return signal_; }

 private:
  static LibEditor& Of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<LibEditor*>(self);
  }
  static char* Prompt(EditLine* edit) { return Of(edit).prompt_.data(); }

  // Reads one character of standard input. Returns -1 once a signal has arrived.
  static int GetCharacter(EditLine* edit, wchar_t* character) {
    LibEditor& self = Of(edit);
    std::mbstate_t state = {};
    while (true) {
      char byte;
      if (!self.interrupt_->Wait(STDIN_FILENO, Interrupt::For::kReading).ok()) return -1;
      if (read(STDIN_FILENO, &byte, 1) != 1) return 0;
      const std::size_t size = std::mbrtowc(character, &byte, 1, &state);
      if (size == static_cast<std::size_t>(-2)) continue;  // the character is incomplete
      if (size != static_cast<std::size_t>(-1)) return 1;
      state = {};  // drops bytes that are not text
    }
  }

  static unsigned char CompleteWord(EditLine* edit, int) {
    LibEditor& self = Of(edit);
    const LineInfo* info = el_line(edit);
    const std::string line(info->buffer, info->cursor);
    const auto [begin, words] = self.complete_(line);
    if (words.empty()) return CC_ERROR;
    std::string common = words[0];
    for (const std::string& word : words)
      common.resize(static_cast<std::size_t>(std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first - common.begin()));
    while (!text::IsUtf8(common)) common.pop_back();
    const std::size_t typed = line.size() - begin;
    const std::string inserted = (common.size() > typed ? common.substr(typed) : "") + (words.size() == 1 ? " " : "");
    if (!inserted.empty()) return el_insertstr(edit, inserted.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    std::fputc('\n', stderr);
    for (const std::string& word : words) {
      std::string shown;
      text::AppendPrintable(word, &shown, /*escapes_backslash=*/false);
      std::fprintf(stderr, "%s  ", shown.c_str());
    }
    std::fputc('\n', stderr);
    return CC_REDISPLAY;
  }
  std::string prompt_;
  const Complete complete_;
  const std::string path_ = HistoryPath();
  EditLine* edit_;
  History* history_;
  HistEvent event_ = {};
  const Interrupt* interrupt_ = nullptr;
  int signal_ = 0;
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::Make(std::string_view prompt, Complete complete) {
  const char* term = std::getenv("TERM");
  const bool can_move = term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
  if (!can_move || isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return nullptr;
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  auto editor = std::make_unique<LibEditor>(prompt, std::move(complete));
  if (!editor->ok()) return nullptr;
  return editor;
}

}  // namespace hako::tool

#endif
