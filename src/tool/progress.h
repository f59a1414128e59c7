// A progress line on a terminal: the number of records, the rate, the estimated time. It appears
// after one second and only if stderr is a terminal, is rewritten in place by a carriage return,
// and is erased at the end. No colours, no escape sequences. One thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace hako::tool {

class Progress {
 public:
  using Clock = std::function<double()>;  // seconds

  // `total` is the final `done` of Update; 0 = unknown. Prints nothing if `out` is nullptr.
  Progress(std::FILE* out, std::uint64_t total, Clock clock = &Progress::Now)
      : out_(out), total_(total), clock_(std::move(clock)), start_(clock_()), next_(start_ + 1) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { Finish(); }

  // Returns stderr if it is a terminal and progress is wanted, otherwise nullptr.
  static std::FILE* Stream(bool is_wanted);

  // `done` is the part of the total that is done, `records` the number of records so far. Reads the
  // clock, so call it once in a few hundred records.
  void Update(std::uint64_t done, std::uint64_t records) {
    if (out_ != nullptr) Show(done, records);
  }

  // Erases the line.
  void Finish();

 private:
  friend class Ticker;
  static double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
  static std::string FormatTime(double seconds);
  void Show(std::uint64_t done, std::uint64_t records);
  void Print(std::string line);

  std::FILE* out_;
  std::uint64_t total_;
  Clock clock_;
  double start_;
  double next_;            // the time of the next print
  std::size_t width_ = 0;  // width of the line on the screen
};

// A line on a terminal for one long call that does not report its progress: the name and the time
// so far. Like that of Progress, it appears after one second if stderr is a terminal, and is erased
// at the end.
class Ticker {
 public:
  explicit Ticker(std::string what, std::FILE* out = Progress::Stream(true));
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;
  ~Ticker();

 private:
  void Run();

  const std::string what_;
  Progress progress_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool is_done_ = false;
  std::thread thread_;  // not started if nothing is shown
};

}  // namespace hako::tool
