// The common part of hako's engines, which differ in how they are opened.
#pragma once

#include <memory>

#include "driver.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/ordered_operations.h"

namespace hako::compare {

#ifdef HAKO_PRESIZED
inline constexpr bool kPresized = true;
#else
inline constexpr bool kPresized = false;
#endif

#ifdef HAKO_NO_LOG
inline constexpr Durability kDurability = Durability::kNone;
#else
inline constexpr Durability kDurability = Durability::kProcess;  // the default
#endif

template <class DbmT>
class HakoEngine {
 public:
  static constexpr bool kConcurrent = true, kWritable = true;

  bool Set(std::string_view key, std::string_view value) { return dbm_->Set(key, value).ok(); }
  bool Get(std::string_view key, std::string* value) { return dbm_->Get(key, value).ok(); }
  bool Remove(std::string_view key) { return dbm_->Remove(key).ok(); }
  template <class Visit>
  bool Scan(Visit visit) {
    return Good(dbm_->ProcessEach(visit));
  }
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) requires OrderedDBM<DbmT> {
    auto it = dbm_->MakeIterator();
    for (it.Jump(key); count > 0 && it.Valid(); --count, it.Next()) visit(it.key(), it.value());
    return Good(it.status());
  }
  std::uint64_t Count() { return dbm_->Count(); }
  bool Close() {
    const bool good = Good(dbm_->Close());
    dbm_.reset();
    return good;
  }

 protected:
  static bool Good(const Status& status) {
    if (!status.ok()) std::fprintf(stderr, "hako: %s\n", status.ToString().c_str());
    return status.ok();
  }
  bool Take(StatusOr<std::unique_ptr<DbmT>> dbm) {
    if (!dbm.ok()) return Good(dbm.status());
    dbm_ = *std::move(dbm);
    return true;
  }

  std::unique_ptr<DbmT> dbm_;
};

}  // namespace hako::compare
