// Reads lines that are typed on a terminal, with editing, history and completion by libedit.
// Without libedit, or if the terminal cannot move its cursor, the terminal itself does the editing.
// The history is stored in the file that HAKO_HISTORY names, by default ~/.hako_history, readable
// by its owner only; an empty HAKO_HISTORY stores none. Lines that begin with a blank are not
// stored.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hako::tool {

class LineEditor {
 public:
  // Words that may replace the end of a line from `begin` on. Each of them begins with that end.
  struct Completion {
    std::size_t begin = 0;
    std::vector<std::string> words = {};
  };
  using Complete = std::function<Completion(std::string_view line)>;  // the line up to the cursor

  // Returns nullptr if lines cannot be edited, for example because standard input or error is not a
  // terminal.
  static std::unique_ptr<LineEditor> Make(std::string_view prompt, Complete complete);
  virtual ~LineEditor() = default;

  // Returns the next line, without its line feed. Returns nullopt at the end of the input, and
  // after a signal, which signal() then returns. Ctrl-C only drops the line.
  virtual std::optional<std::string> Next() = 0;
  virtual int signal() const = 0;
};

}  // namespace hako::tool
