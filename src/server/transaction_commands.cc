// MULTI, EXEC and WATCH. EXEC runs its commands while no other thread runs one. The time stands
// still meanwhile, so no command finds a record expired that another has found alive. The updates
// are kept in memory and then written as one WriteBatch: after a crash all of them are present, or
// none.
#include <algorithm>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "server/dispatcher.h"
#include "server/handlers.h"

namespace hako::server::commands {

namespace {

// Whether a watched key was changed, or has expired, since it was watched.
bool IsWatchBroken(Call& call) {
  WatchState& watched = call.client.watched;
  if (watched.is_touched) return true;
  for (const auto& [key, exists] : watched.keys) {
    if (exists && !call.keys().Contains(key).value_or(false)) return true;
  }
  return false;
}

// Reads the records that the commands name, so that none of them expires before its command runs.
void PrepareKeys(Call& call, const std::vector<Client::Queued>& queued) {
  if (!call.keys().KeepsTimes()) return;
  for (const Client::Queued& one : queued) {
    const Command& command = *one.command;
    if (command.first_key <= 0) continue;
    const auto size = static_cast<int>(one.words.size());
    const int last = command.last_key < 0 ? size + command.last_key : std::min(command.last_key, size - 1);
    for (int i = command.first_key; i <= last; i += std::max(command.key_step, 1))
      call.keys().Prepare(one.words[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

void Multi(Call& call) {
  if (call.client.is_in_multi) return call.Fail("ERR MULTI calls can not be nested");
  call.client.is_in_multi = true;
  call.reply.Ok();
}

void Discard(Call& call) {
  if (!call.client.is_in_multi) return call.Fail("ERR DISCARD without MULTI");
  call.client.EndMulti();
  call.server().watches.Remove(&call.client.watched);
  call.reply.Ok();
}

void Exec(Call& call) {
  if (!call.client.is_in_multi) return call.Fail("ERR EXEC without MULTI");
  const bool has_bad_command = call.client.has_bad_command;
  const bool is_broken = IsWatchBroken(call);
  std::vector<Client::Queued> queued = std::move(call.client.queued);
  call.client.EndMulti();
  call.server().watches.Remove(&call.client.watched);
  if (has_bad_command) return call.Fail("EXECABORT Transaction discarded because of previous errors.");
  if (is_broken) return call.reply.NullArray();
  const std::size_t begin = call.reply.out().size();
  const Settings& settings = call.server().settings;
  const std::int64_t memory_max = settings.memory_max;
  call.keys().Begin(static_cast<std::size_t>(memory_max > 0 ? memory_max : settings.request_max.load()));
  call.thread.measured = std::chrono::steady_clock::now();
  try {
    PrepareKeys(call, queued);
    call.reply.Array(queued.size());
    for (const Client::Queued& one : queued) {
      const std::vector<std::string_view> words(one.words.begin(), one.words.end());
      Call queued_call{.thread = call.thread, .client = call.client, .reply = call.reply, .command = *one.command, .args = words};
      RunMeasured(queued_call);
    }
  } catch (const std::bad_alloc&) {
    call.keys().Abandon();
    throw;
  }
  const Status written = call.keys().Commit();
  if (written.ok()) return;
  call.reply.out().Truncate(begin);
  std::string text = call.TextOf(written);
  if (text.starts_with("ERR ")) text.erase(0, 4);
  call.Fail("EXECABORT Transaction discarded because of: " + text);
}

void Watch(Call& call) {
  if (call.client.is_in_multi) return call.Fail("ERR WATCH inside MULTI is not allowed");
  for (const std::string_view key : call.args.subspan(1)) {
    const auto [watched, is_new] = call.client.watched.keys.emplace(key, false);
    if (!is_new) continue;
    call.server().watches.Add(&call.client.watched, key);  // before the look-up, so that a change in between is noticed
    const StatusOr<bool> exists = call.keys().Contains(key);
    if (!call.Check(exists.status())) return;
    watched->second = *exists;
  }
  call.reply.Ok();
}

void Unwatch(Call& call) {
  call.server().watches.Remove(&call.client.watched);
  call.reply.Ok();
}

}  // namespace hako::server::commands
