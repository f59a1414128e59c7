// The common part of the Kyoto Cabinet engines, which differ in how they are opened.
#pragma once

#include <kcdb.h>

#include <memory>

#include "driver.h"

namespace hako::compare {

template <class DbT>
class KyotoEngine {
 public:
  static constexpr bool kConcurrent = true, kWritable = true;

  bool Set(std::string_view key, std::string_view value) { return db_.set(key.data(), key.size(), value.data(), value.size()); }
  // By a visitor: its own get() into a buffer is one too, and get() into a string allocates a copy
  // first.
  bool Get(std::string_view key, std::string* value) {
    Copier copier(value);
    return db_.accept(key.data(), key.size(), &copier, false) && copier.found;
  }
  bool Remove(std::string_view key) { return db_.remove(key.data(), key.size()); }
  std::uint64_t Count() { return static_cast<std::uint64_t>(db_.count()); }

  template <class Visit>
  bool Scan(Visit visit) {
    Each each(visit);
    return db_.iterate(&each, false);
  }
  bool Close() { return Good(db_.close()); }

 protected:
  bool Good(bool good) { return good || Fail(db_.error().message()); }

  template <class Visit>
  class Each final : public kyotocabinet::DB::Visitor {
   public:
    explicit Each(Visit& each) : each_(each) {}

   private:
    const char* visit_full(const char* key, std::size_t key_size, const char* value, std::size_t value_size, std::size_t*) override {
      each_(std::string_view(key, key_size), std::string_view(value, value_size));
      return NOP;
    }
    Visit& each_;
  };

  DbT db_;

 private:
  class Copier final : public kyotocabinet::DB::Visitor {
   public:
    explicit Copier(std::string* value) : value_(value) {}
    bool found = false;

   private:
    const char* visit_full(const char*, std::size_t, const char* value, std::size_t value_size, std::size_t*) override {
      value_->assign(value, value_size);
      found = true;
      return NOP;
    }
    std::string* value_;
  };
};

// Those in order: a cursor shows records and steps over each.
template <class DbT>
class KyotoOrderedEngine : public KyotoEngine<DbT> {
 public:
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    const std::unique_ptr<kyotocabinet::DB::Cursor> cursor(this->db_.cursor());
    typename KyotoEngine<DbT>::template Each<Visit> each(visit);
    if (!cursor->jump(key.data(), key.size())) return this->db_.count() == 0;
    while (count > 0 && cursor->accept(&each, false, true)) --count;
    return count == 0 || this->db_.error() == kyotocabinet::BasicDB::Error::NOREC;
  }
};

}  // namespace hako::compare
