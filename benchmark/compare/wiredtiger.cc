// WiredTiger, a B-tree table with 256 MiB of cache: without a log, or with --settings=process with one
// that is written and not synced at each Set; or its defaults, without a log. One session and cursor.
#include <wiredtiger.h>

#include "driver.h"

namespace hako::compare {

class WiredTigerEngine {
 public:
  static constexpr std::string_view kName = "wiredtiger";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t) {
    std::filesystem::create_directory(path);
    const char* const config = settings == Settings::kProcess
                                   ? "create,cache_size=256MB,log=(enabled=true),transaction_sync=(enabled=true,method=none)"
                               : IsTuned() ? "create,cache_size=256MB"
                                           : "create";
    return Good(wiredtiger_open(path.c_str(), nullptr, config, &connection_)) &&
           Good(connection_->open_session(connection_, nullptr, nullptr, &session_)) &&
           Good(session_->create(session_, "table:records", "key_format=u,value_format=u")) &&
           Good(session_->open_cursor(session_, "table:records", nullptr, "overwrite=true", &cursor_));
  }
  bool Set(std::string_view key, std::string_view value) {
    const WT_ITEM item = Item(value);
    SetKey(key);
    cursor_->set_value(cursor_, &item);
    return Good(cursor_->insert(cursor_));
  }
  bool Get(std::string_view key, std::string* value) {
    WT_ITEM item;
    SetKey(key);
    const bool found = cursor_->search(cursor_) == 0 && cursor_->get_value(cursor_, &item) == 0;
    if (found) value->assign(View(item));
    cursor_->reset(cursor_);
    return found;
  }
  bool Remove(std::string_view key) {
    SetKey(key);
    return Good(cursor_->remove(cursor_));
  }
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    int where = 0, result;
    if (key.empty()) {
      result = cursor_->next(cursor_);
    } else {
      SetKey(key);
      result = cursor_->search_near(cursor_, &where);
      if (result == 0 && where < 0) result = cursor_->next(cursor_);
    }
    for (WT_ITEM k, v; result == 0 && count > 0; --count, result = cursor_->next(cursor_)) {
      if (cursor_->get_key(cursor_, &k) != 0 || cursor_->get_value(cursor_, &v) != 0) return false;
      visit(View(k), View(v));
    }
    cursor_->reset(cursor_);
    return result == 0 || result == WT_NOTFOUND;
  }
  bool Close() { return Good(connection_->close(connection_, nullptr)); }

 private:
  static WT_ITEM Item(std::string_view bytes) {
    WT_ITEM item{};
    item.data = bytes.data(), item.size = bytes.size();
    return item;
  }
  static std::string_view View(const WT_ITEM& item) { return {static_cast<const char*>(item.data), item.size}; }
  void SetKey(std::string_view key) {
    const WT_ITEM item = Item(key);
    cursor_->set_key(cursor_, &item);
  }
  static bool Good(int result) { return result == 0 || Fail(wiredtiger_strerror(result)); }

  WT_CONNECTION* connection_ = nullptr;
  WT_SESSION* session_ = nullptr;
  WT_CURSOR* cursor_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::WiredTigerEngine>(argc, argv); }
