// ConfigFile: the format of the configuration file, lines "option = value". A '#' begins a comment at the start of
// a line or after a blank, outside of quotes. CLI11 alone would cut every value there, and with it a password.
#pragma once

#include <CLI/CLI.hpp>
#include <istream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace hako::server {

class ConfigFile : public CLI::ConfigTOML {
 public:
  ConfigFile() { comment('\0'); }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::stringstream lines;
    for (std::string line; std::getline(input, line);) lines << WithoutComment(line) << '\n';
    return CLI::ConfigTOML::from_config(lines);
  }

 private:
  static std::string_view WithoutComment(std::string_view line) {
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote != 0 ? c == quote : c == '"' || c == '\'') quote = quote != 0 ? '\0' : c;
      if (quote == 0 && c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) return line.substr(0, i);
    }
    return line;
  }
};

}  // namespace hako::server
