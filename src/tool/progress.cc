#include "tool/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tool/numbers.h"

namespace hako::tool {

std::FILE* Progress::Stream(bool is_wanted) { return is_wanted && isatty(STDERR_FILENO) == 1 ? stderr : nullptr; }

std::string Progress::FormatTime(double seconds) {
  const auto whole = std::llround(std::min(seconds, 359999.0));
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

void Progress::Show(std::uint64_t done, std::uint64_t records) {
  const double now = clock_();
  if (now < next_) return;
  next_ = now + 0.2;
  const double elapsed = now - start_;
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(records) / elapsed);
  std::string line = absl::StrFormat("%s records, %s/s", GroupDigits(records), GroupDigits(rate));
  if (total_ > 0 && done > 0) {
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
    line = absl::StrFormat("%3.0f%%, %s, ETA %s", share * 100, line, FormatTime(elapsed / share - elapsed));
  }
  Print(std::move(line));
}

void Progress::Print(std::string line) {
  const std::size_t size = line.size();
  line.resize(std::max(size, width_), ' ');  // covers the old text
  width_ = size;
  std::fprintf(out_, "\r%s", line.c_str());
  std::fflush(out_);
}

void Progress::Finish() {
  if (out_ == nullptr || width_ == 0) return;
  Print("");
  std::fputc('\r', out_);
  std::fflush(out_);
}

Ticker::Ticker(std::string what, std::FILE* out) : what_(std::move(what)), progress_(out, 0) {
  if (out != nullptr) thread_ = std::thread([this] { Run(); });
}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Ticker::Run() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!wakes_.wait_for(lock, std::chrono::seconds(1), [this] { return is_done_; })) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress_.Print(absl::StrCat(what_, ", ", Progress::FormatTime(seconds)));
  }
}

}  // namespace hako::tool
