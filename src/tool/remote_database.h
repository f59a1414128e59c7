// RemoteDatabase: the records of a server, by the names and with the errors of AnyDBM; see dbm/any_dbm.h.
// Beyond those errors each call may return those of RemoteClient::Receive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/multi_operations.h"
#include "tool/remote_client.h"

namespace hako::tool {

class RemoteDatabase {
 public:
  static StatusOr<std::unique_ptr<RemoteDatabase>> Open(const RemoteAddress& address);

  Status Get(std::string_view key, std::string* value);
  StatusOr<std::uint64_t> GetSize(std::string_view key);
  Status Set(std::string_view key, std::string_view value, const SetOptions& options);
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter);
  // The record is a number in decimal, as the server's INCRBY has it.
  StatusOr<std::int64_t> Increment(std::string_view key, std::int64_t delta);
  Status Remove(std::string_view key);
  Status Rekey(std::string_view old_key, std::string_view new_key, const RekeyOptions& options);
  StatusOr<std::uint64_t> GetExpiry(std::string_view key);
  Status Expire(std::string_view key, std::uint64_t ttl, std::uint64_t at);  // one of them, in milliseconds
  Status Persist(std::string_view key);
  StatusOr<std::uint64_t> Count();

  // A record; without its value if only keys are wanted. Returns whether to continue.
  using Visit = std::function<bool(std::string_view key, std::optional<std::string_view> value)>;
  // Shows records whose keys begin with the prefix, in no order, by SCAN. Keys whose value is no string
  // are counted in *num_others.
  Status Scan(std::string_view prefix, bool keys_only, const Visit& visit, std::uint64_t* num_others);
  // Shows those of [from, to) in order, to = nullopt: all behind. Unimplemented if the server is no
  // hako-server, or its database has no order or another than that of bytes.
  Status Range(std::string_view from, std::optional<std::string_view> to, bool is_reverse, bool keys_only, const Visit& visit);

 private:
  // How many records are asked for at once: more while they are small, so that a page is about a MiB, far
  // below the limit of replies of a server.
  class PageSize {
   public:
    std::size_t size() const { return size_; }
    std::string text() const { return std::to_string(size_); }
    void Note(std::size_t bytes) {
      if (bytes > kBytes) size_ = std::max<std::size_t>(size_ / 4, 1);
      if (bytes < kBytes / 4) size_ = std::min<std::size_t>(size_ * 2, 1000);
    }

   private:
    static constexpr std::size_t kBytes = 1 << 20;
    std::size_t size_ = 16;
  };

  explicit RemoteDatabase(std::unique_ptr<RemoteClient> client) : client_(std::move(client)) {}
  Status CheckOrder();
  StatusOr<bool> ShowPage(std::span<const RemoteReply> keys, const Visit& visit, std::uint64_t* num_others);
  StatusOr<std::vector<RemoteReply>> Elements(std::initializer_list<std::string_view> words);

  const std::unique_ptr<RemoteClient> client_;
  PageSize page_;
};

}  // namespace hako::tool
