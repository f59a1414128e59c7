// perf --remote: sets, gets and removes records of a server, one phase after the other, each in all
// threads at once. A thread has its own connection, and sends --pipeline requests before it waits for
// their replies; the latency is that of such a group.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tool/message.h"
#include "tool/numbers.h"
#include "tool/perf.h"
#include "tool/remote_client.h"

namespace hako::tool {
namespace {

using Clock = std::chrono::steady_clock;

// What a thread has found.
struct Found {
  LatencyHistogram latency;
  std::uint64_t num_wrong = 0;  // replies that are not those of the records that were set
  Status status;
};

class RemotePerf {
 public:
  RemotePerf(const PerfOptions& options, std::vector<std::unique_ptr<RemoteClient>> clients)
      : options_(options), clients_(std::move(clients)), value_(static_cast<std::size_t>(options.value_size), 'v') {}

  // Runs all phases. The records are removed even if a phase before has found wrong replies.
  Status Run() {
    if (!options_.json) {
      std::printf("Server: records=%lld size=%lld threads=%lld pipeline=%lld; microseconds of a pipeline\n",
                  static_cast<long long>(options_.num_records), static_cast<long long>(options_.value_size),
                  static_cast<long long>(options_.num_threads), static_cast<long long>(options_.pipeline));
      std::printf("%-8s %9s %12s %9s %9s %9s %10s\n", "phase", "seconds", "per second", "p50", "p99", "p99.9", "longest");
    }
    const auto is_ok = [](const RemoteReply& reply) { return reply.text == "OK"; };
    const auto is_value = [this](const RemoteReply& reply) { return reply.text == value_; };
    const auto is_one = [](const RemoteReply& reply) { return reply.integer == 1; };
    HAKO_RETURN_IF_ERROR(RunPhase("set", {"SET", "", value_}, is_ok));
    HAKO_RETURN_IF_ERROR(RunPhase("get", {"GET", ""}, is_value));
    return RunPhase("remove", {"DEL", ""}, is_one);
  }
  bool is_right() const { return num_wrong_ == 0; }

 private:
  using Words = std::vector<std::string_view>;
  using Check = std::function<bool(const RemoteReply&)>;

  Status RunPhase(const char* name, const Words& words, const Check& check) {
    std::vector<Found> found(clients_.size());
    const auto begin = Clock::now();
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < clients_.size(); ++i)
      threads.emplace_back([&, i] { found[i].status = RunThread(i, words, check, &found[i]); });
    for (std::thread& thread : threads) thread.join();
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    Found all;
    for (const Found& one : found) {
      all.latency.Merge(one.latency);
      all.num_wrong += one.num_wrong;
      all.status.Update(one.status);
    }
    HAKO_RETURN_IF_ERROR(all.status);
    num_wrong_ += all.num_wrong;
    Print(name, elapsed, all);
    return absl::OkStatus();
  }

  // Its share of the records, by groups. Word 1 is the key.
  Status RunThread(std::size_t thread, Words words, const Check& check, Found* found) {
    const std::size_t total = static_cast<std::size_t>(options_.num_records), share = total / clients_.size();
    const std::size_t begin = thread * share, end = thread + 1 == clients_.size() ? total : begin + share;
    RemoteClient& client = *clients_[thread];
    for (std::size_t i = begin; i < end;) {
      const std::size_t group_end = std::min(end, i + static_cast<std::size_t>(options_.pipeline));
      const auto sent_at = Clock::now();
      for (std::size_t at = i; at < group_end; ++at) {
        const std::string key = absl::StrCat("hako-perf:", at);
        words[1] = key;
        client.Add(words);
      }
      for (; i < group_end; ++i) {
        HAKO_ASSIGN_OR_RETURN(const RemoteReply reply, client.Receive());
        if (!check(reply)) ++found->num_wrong;
      }
      found->latency.Add(static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - sent_at).count()));
    }
    return absl::OkStatus();
  }

  void Print(const char* name, double elapsed, const Found& found) const {
    const LatencyHistogram& latency = found.latency;
    const double rate = static_cast<double>(options_.num_records) / std::max(elapsed, 1e-9);
    if (options_.json) {
      const nlohmann::ordered_json object = {{"phase", name},
                                             {"num_records", options_.num_records},
                                             {"value_size", options_.value_size},
                                             {"threads", options_.num_threads},
                                             {"pipeline", options_.pipeline},
                                             {"elapsed_time", elapsed},
                                             {"per_second", rate},
                                             {"latency_ns",
                                              {{"p50", latency.Percentile(0.5)},
                                               {"p99", latency.Percentile(0.99)},
                                               {"p99.9", latency.Percentile(0.999)},
                                               {"max", latency.max()}}},
                                             {"wrong", found.num_wrong}};
      std::printf("%s\n", object.dump().c_str());
    } else {
      const auto us = [](std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; };
      std::printf("%-8s %9.3f %12.0f %9.1f %9.1f %9.1f %10.1f\n", name, elapsed, rate, us(latency.Percentile(0.5)),
                  us(latency.Percentile(0.99)), us(latency.Percentile(0.999)), us(latency.max()));
    }
    std::fflush(stdout);
    if (found.num_wrong != 0)
      Complain(absl::StrCat(name, ": ", GroupDigits(found.num_wrong), " wrong replies; do other clients change these records?"),
               options_.command);
  }

  const PerfOptions& options_;
  const std::vector<std::unique_ptr<RemoteClient>> clients_;
  const std::string value_;
  std::uint64_t num_wrong_ = 0;
};

}  // namespace

int RunPerfOnServer(const PerfOptions& given) {
  PerfOptions options = given;
  if (options.num_records == 0) options.num_records = 100'000;
  if (!RemoteAddress::IsOne(options.remote)) return FailUsage("perf", "--remote takes an address such as redis://localhost:6379");
  const StatusOr<RemoteAddress> address = RemoteAddress::Parse(options.remote);
  if (!address.ok()) return FailUsage("perf", absl::StrCat("--remote: ", address.status().message()));
  options.num_threads = std::min(options.num_threads, options.num_records);
  std::vector<std::unique_ptr<RemoteClient>> clients;
  for (std::int64_t i = 0; i < options.num_threads; ++i) {
    auto client = RemoteClient::Connect(*address);
    if (!client.ok()) return FailServer(address->shown, client.status());
    clients.push_back(*std::move(client));
  }
  RemotePerf perf(options, std::move(clients));
  if (const Status status = perf.Run(); !status.ok()) return FailServer(address->shown, status);
  return perf.is_right() ? kExitDone : kExitNo;
}

}  // namespace hako::tool
