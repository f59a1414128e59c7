// The common part of the Tkrzw engines, which differ in how they are opened.
#pragma once

#include <tkrzw_dbm.h>

#include "driver.h"

namespace hako::compare {

template <class DbmT>
class TkrzwEngine {
 public:
  static constexpr bool kConcurrent = true, kWritable = true;

  bool Set(std::string_view key, std::string_view value) { return dbm_->Set(key, value).IsOK(); }
  bool Get(std::string_view key, std::string* value) { return dbm_->Get(key, value).IsOK(); }
  bool Remove(std::string_view key) { return dbm_->Remove(key).IsOK(); }
  std::uint64_t Count() { return static_cast<std::uint64_t>(dbm_->CountSimple()); }

  // ProcessEach is its fastest scan: an iterator looks every record up again.
  template <class Visit>
  bool Scan(Visit visit) {
    Processor<Visit> processor(visit);
    return dbm_->ProcessEach(&processor, false).IsOK();
  }

  bool Close() {
    const bool good = dbm_->Close().IsOK();
    dbm_.reset();
    return good;
  }

 protected:
  template <class Visit>
  class Processor final : public tkrzw::DBM::RecordProcessor {
   public:
    explicit Processor(Visit& each) : each_(each) {}
    std::string_view ProcessFull(std::string_view key, std::string_view value) override {
      each_(key, value);
      return NOOP;
    }

   private:
    Visit& each_;
  };

  std::unique_ptr<DbmT> dbm_;
};

// In the order of the keys.
template <class DbmT>
class TkrzwOrderedEngine : public TkrzwEngine<DbmT> {
 public:
  // Process shows the record where it lies; Get would copy it.
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    typename TkrzwEngine<DbmT>::template Processor<Visit> processor(visit);
    const auto it = this->dbm_->MakeIterator();
    tkrzw::Status status = it->Jump(key);
    for (; status.IsOK() && count > 0; --count) {
      status = it->Process(&processor, false);
      if (status.IsOK() && count > 1) status = it->Next();
    }
    return status.IsOK() || status == tkrzw::Status::NOT_FOUND_ERROR;
  }
};

}  // namespace hako::compare
