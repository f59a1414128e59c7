// Lines that a user types on a terminal, with editing, history and completion by libedit; in a program that was built without libedit, and
// on a terminal that cannot move its cursor, as the terminal itself edits them.
//
// The history is kept in the file that HAKO_HISTORY names, ~/.hako_history unless it is set, for its owner only; an empty HAKO_HISTORY
// keeps none. Lines that begin with a blank are not kept.
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
  // What can stand for the end of a line from `begin` on; each of the words begins with it.
  struct Completion {
    std::size_t begin = 0;
    std::vector<std::string> words = {};
  };
  using Complete = std::function<Completion(std::string_view line)>;  // the line up to the cursor

  // nullptr where lines cannot be edited: standard input or error is no terminal, say.
  static std::unique_ptr<LineEditor> Make(std::string_view prompt, Complete complete);
  virtual ~LineEditor() = default;

  // The next line, without its end. nullopt at the end of the input, and after a signal, which signal() then names; Ctrl-C only drops the
  // line.
  virtual std::optional<std::string> Next() = 0;
  virtual int signal() const = 0;
};

}  // namespace hako::tool
