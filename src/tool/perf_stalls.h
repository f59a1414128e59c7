// "perf --stalls": how long single Gets and Sets wait beside each maintenance operation.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "tool/message.h"
#include "tool/perf.h"
#include "tool/stall_meter.h"
#include "tool/stall_operations.h"

namespace hako::tool {

void PrintStallHead(const PerfOptions& options);
void PrintStalls(const PerfOptions& options, std::string_view operation, const StallReport& report);

template <class Target>
class Stalls {
  using Db = std::remove_reference_t<decltype(std::declval<Target&>().db())>;
  using Operations = StallOperations<Db>;

 public:
  explicit Stalls(const PerfOptions& options)
      : options_(options),
        records_(static_cast<std::uint64_t>(options.num_records), static_cast<std::size_t>(options.value_size),
                 static_cast<std::size_t>(options.huge_size)),
        target_(options) {
    scale_.batch_size = static_cast<std::uint64_t>(options.batch_size < 0 ? options.num_records / 16 : options.batch_size);
    scale_.huge_size = static_cast<std::size_t>(options.huge_size);
    scale_.seconds = options.seconds;
    scale_.copy_path = !options.copy_path.empty() || options.path.empty() ? options.copy_path : options.path + ".stalls";
  }

  int Run() {
    const bool harvests = Target::kIsInFile && IsWanted(kHarvest);
    Status status = harvests ? FillAndDie() : absl::OkStatus();
    if (status.ok()) status = target_.SetUp(true, !harvests);
    if (!status.ok()) return Fail(options_.path, status);
    PrintStallHead(options_);
    Operations operations(target_.db(), records_, scale_);
    if (!harvests) status = operations.Fill(0, records_.size());
    // Replace every tenth record, so that space is needed everywhere.
    if (harvests) status = Measure(kHarvest, [&] { return operations.Fill(0, records_.size() / 10 + 1); });
    for (const std::string_view name : kStallOperations) {
      if (!status.ok()) break;
      if (!Operations::Has(name) || !IsWanted(name) || (name == "copy" && scale_.copy_path.empty())) continue;
      status = operations.Prepare(name);
      if (status.ok()) status = Measure(name, [&] { return operations.Run(name); });
      if (status.ok()) status = operations.CleanUp(name);
    }
    const Status closed = target_.TearDown();
    if (status.ok()) status = closed;
    return status.ok() ? kExitDone : Fail(options_.path, status);
  }

 private:
  bool IsWanted(std::string_view name) const {
    return options_.operations.empty() ||
           std::find(options_.operations.begin(), options_.operations.end(), name) != options_.operations.end();
  }

  template <class Operation>
  Status Measure(std::string_view name, Operation operation) {
    const StallReport report = MeasureStalls(target_.db(), records_, options_.durable, operation);
    PrintStalls(options_, name, report);
    return report.status;
  }

  // Creates the database in another process, which is killed before its last updates are
  // synchronized. Must be called before any thread is started.
  Status FillAndDie() {
    const pid_t child = fork();
    if (child < 0) return absl::ResourceExhaustedError("cannot start a process for the harvest");
    if (child == 0) {
      Status status = target_.SetUp(true, true);
      if (status.ok()) {
        Operations operations(target_.db(), records_, scale_);
        status = operations.Fill(0, records_.size());
        if (status.ok()) status = target_.db().Synchronize(SyncMode::kHard);
        if (status.ok()) status = operations.Fill(0, records_.size());
      }
      if (status.ok()) kill(getpid(), SIGKILL);
      _exit(Fail(options_.path, status));
    }
    int ended = 0;
    if (waitpid(child, &ended, 0) == child && WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL) return absl::OkStatus();
    return absl::AbortedError("the process that makes the database failed");
  }

  const PerfOptions& options_;
  const StallRecords records_;
  StallScale scale_;
  Target target_;
};

}  // namespace hako::tool
