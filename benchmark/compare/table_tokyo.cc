// Tokyo Cabinet's table database: twice as many buckets as rows, everything in its caches and mapped. A
// column has one index there, so texts are stored in two columns. The index of q-grams serves only the
// full-text operators, which find more rows; the condition that compares bytes is checked in those.
#include <tctdb.h>

#include "table.h"

namespace hako::compare {

class TableTokyo {
 public:
  static constexpr const char* kName = "tokyo";

  bool Open(const std::string& path, std::uint64_t n, bool text) {
    db_ = tctdbnew();
    tctdbtune(db_, static_cast<std::int64_t>(2 * n), -1, -1, TDBTLARGE);
    tctdbsetcache(db_, 0, 65'536, 16'384);
    tctdbsetxmsiz(db_, std::int64_t{1} << 30);
    if (!tctdbopen(db_, (path + ".tct").c_str(), TDBOWRITER | TDBOCREAT | TDBOTRUNC)) return false;
    if (text) return tctdbsetindex(db_, "words", TDBITTOKEN) && tctdbsetindex(db_, "text", TDBITQGRAM);
    return tctdbsetindex(db_, "str", TDBITLEXICAL) && tctdbsetindex(db_, "num", TDBITDECIMAL);
  }
  bool Put(const TableRow* rows, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      TCMAP* const cells = tcmapnew2(8);
      const TableRow& row = rows[i];
      for (const auto& [name, value] : {std::pair("str", &row.str), {"num", &row.num}, {"a", &row.a}, {"b", &row.b}})
        tcmapput(cells, name, static_cast<int>(std::strlen(name)), value->data(), static_cast<int>(value->size()));
      const bool good = tctdbput(db_, row.key.data(), static_cast<int>(row.key.size()), cells);
      tcmapdel(cells);
      if (!good) return false;
    }
    return true;
  }
  bool PutTexts(const TableRow* rows, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      TCMAP* const cells = tcmapnew2(4);
      for (const char* name : {"text", "words"})
        tcmapput(cells, name, static_cast<int>(std::strlen(name)), rows[i].text.data(), static_cast<int>(rows[i].text.size()));
      const bool good = tctdbput(db_, rows[i].key.data(), static_cast<int>(rows[i].key.size()), cells);
      tcmapdel(cells);
      if (!good) return false;
    }
    return true;
  }
  bool Flush() { return true; }
  bool Get(std::string_view key, TableSum* sum) {
    TCMAP* const cells = tctdbget(db_, key.data(), static_cast<int>(key.size()));
    if (cells == nullptr) return false;
    sum->Add(key);
    for (const char* name : {"str", "num", "a", "b"}) {
      int size = 0;
      const void* const value = tcmapget(cells, name, static_cast<int>(std::strlen(name)), &size);
      sum->Add({static_cast<const char*>(value), static_cast<std::size_t>(size)});
    }
    tcmapdel(cells);
    return true;
  }
  bool Search(const std::string& str, TableSum* sum) { return Run("str", TDBQCSTREQ, str, nullptr, true, sum); }
  bool Range(std::uint64_t low, std::uint64_t high, TableSum* sum) {
    return Run("num", TDBQCNUMBT, std::to_string(low) + "," + std::to_string(high), "num", true, sum);
  }
  bool Substring(const std::string& piece, TableSum* sum) { return Run("text", TDBQCSTRINC, piece, nullptr, false, sum); }
  bool Words(const std::string& words, TableSum* sum) { return Run("words", TDBQCSTRAND, words, nullptr, false, sum); }
  bool Close() {
    const bool good = tctdbclose(db_);
    tctdbdel(db_);
    return good;
  }

 private:
  bool Run(const char* column, int op, const std::string& text, const char* order, bool reads, TableSum* sum) {
    TDBQRY* const query = tctdbqrynew(db_);
    if (op == TDBQCSTRINC) tctdbqryaddcond(query, column, TDBQCFTSPH, text.c_str());
    tctdbqryaddcond(query, column, op, text.c_str());
    if (order != nullptr) {
      tctdbqrysetorder(query, order, TDBQONUMASC);
      tctdbqrysetlimit(query, 10, 0);
    }
    TCLIST* const keys = tctdbqrysearch(query);
    bool good = true;
    for (int i = 0; i < tclistnum(keys); ++i) {
      int size = 0;
      const char* const key = static_cast<const char*>(tclistval(keys, i, &size));
      if (reads)
        good = good && Get({key, static_cast<std::size_t>(size)}, sum);
      else
        sum->Add({key, static_cast<std::size_t>(size)});
    }
    tclistdel(keys);
    tctdbqrydel(query);
    return good;
  }

  TCTDB* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TableMain<hako::compare::TableTokyo>(argc, argv); }
