// One line on a terminal that tells how far a long command has come: what is done, the rate, the time to go.
//
// It appears after one second and only where stderr is a terminal, is rewritten in place by a carriage return, and is wiped out at the
// end. No colours, no escape sequences. One thread.
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

  // `total`: what `done` of Update will reach; 0 = unknown. nullptr for `out` is silence.
  Progress(std::FILE* out, std::uint64_t total, Clock clock = &Progress::Now)
      : out_(out), total_(total), clock_(std::move(clock)), start_(clock_()), next_(start_ + 1) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { Finish(); }

  // stderr if it is a terminal and the user did not object.
  static std::FILE* Stream(bool is_wanted);

  // `done` of the total; `records` processed so far. Looks at the clock, so call it once in a few hundred records.
  void Update(std::uint64_t done, std::uint64_t records) {
    if (out_ != nullptr) Show(done, records);
  }

  // Wipes the line out.
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
  double next_;            // when to print
  std::size_t width_ = 0;  // of the line on the screen
};

// A line on a terminal for one long call that does not tell how far it is: what is done, and for how long. As Progress, it appears after
// one second where stderr is a terminal, and is wiped out at the end.
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
  std::thread thread_;  // none where there is nothing to show
};

}  // namespace hako::tool
