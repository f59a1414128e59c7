// Tokyo Cabinet's table database: twice as many buckets as rows, everything in its caches and mapped. A
// column has one index there, and tokens are separated by blanks or commas, so a row has its words, as
// hako folds them, in a separate column. The index of q-grams serves only the full-text operators,
// which ignore case, accents and repeated blanks, so they may find more rows; TDBQCSTRINC, which does
// not ignore them, reads the whole table. There are no phrases of words, and the first rows are not
// in an order.
#include <tctdb.h>

#include "texts.h"

namespace hako::compare {

class TextsTokyo {
 public:
  static constexpr const char* kName = "tokyo";
  static constexpr unsigned kIndices = kWords | kGrams;
  static constexpr bool kBuilds = true, kHasOwnWords = false, kFindsMore = true;

  bool Open(const std::string& path, const Texts& texts, unsigned indices, bool creates) {
    columns_ = &texts.columns;
    db_ = tctdbnew();
    tctdbtune(db_, static_cast<std::int64_t>(2 * texts.rows.size()), -1, -1, TDBTLARGE);
    tctdbsetcache(db_, 0, 65'536, 16'384);
    tctdbsetxmsiz(db_, std::int64_t{1} << 30);
    if (!tctdbopen(db_, (path + ".tct").c_str(), TDBOWRITER | (creates ? TDBOCREAT | TDBOTRUNC : 0))) return false;
    return !creates || (((indices & kWords) == 0 || Build(kWords)) && ((indices & kGrams) == 0 || Build(kGrams)));
  }
  bool Put(const TextRow* rows, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      TCMAP* const cells = tcmapnew2(16);
      const auto put = [&](const std::string& name, std::string_view value) {
        tcmapput(cells, name.data(), static_cast<int>(name.size()), value.data(), static_cast<int>(value.size()));
      };
      for (std::size_t j = 1; j < columns_->size(); ++j) put((*columns_)[j], rows[i].cells[j]);
      put("words", rows[i].words);
      const bool good = tctdbput(db_, rows[i].key().data(), static_cast<int>(rows[i].key().size()), cells);
      tcmapdel(cells);
      if (!good) return false;
    }
    return true;
  }
  bool Flush() { return true; }
  bool Build(unsigned kind) {
    return kind == kWords ? tctdbsetindex(db_, "words", TDBITTOKEN) : tctdbsetindex(db_, columns_->back().c_str(), TDBITQGRAM);
  }
  bool Merge(unsigned) { return true; }
  bool Compact() { return tctdboptimize(db_, 0, -1, -1, UINT8_MAX); }
  bool Close() {
    const bool good = tctdbclose(db_);
    tctdbdel(db_);
    return good;
  }

  bool Answers(const TextQuery& query) { return query.kind != TextQuery::kPhrase; }
  bool Count(const TextQuery& query, std::uint64_t* count) {
    TCLIST* const keys = Run(query, -1);
    *count = static_cast<std::uint64_t>(tclistnum(keys));
    tclistdel(keys);
    return true;
  }
  bool First(const TextQuery& query, TableSum*, std::uint64_t* rows) {
    TCLIST* const keys = Run(query, 10);
    TableSum sum;
    for (int i = 0; i < tclistnum(keys); ++i, ++*rows) {
      int size = 0;
      const void* const key = tclistval(keys, i, &size);
      TCMAP* const cells = tctdbget(db_, key, size);
      if (cells == nullptr) return false;
      for (std::size_t j = 1; j < columns_->size(); ++j) {
        const std::string& name = (*columns_)[j];
        const void* const value = tcmapget(cells, name.data(), static_cast<int>(name.size()), &size);
        sum.Add({static_cast<const char*>(value), static_cast<std::size_t>(size)});
      }
      tcmapdel(cells);
    }
    tclistdel(keys);
    return true;
  }

 private:
  TCLIST* Run(const TextQuery& query, int limit) {
    TDBQRY* const search = tctdbqrynew(db_);
    if (!query.IsOfWords()) {
      tctdbqryaddcond(search, columns_->back().c_str(), TDBQCFTSPH, query.argument.c_str());
    } else if (query.kind == TextQuery::kNotWord) {
      tctdbqryaddcond(search, "words", TDBQCSTRAND, query.First().c_str());
      tctdbqryaddcond(search, "words", TDBQCSTRAND | TDBQCNEGATE, query.Second().c_str());
    } else {
      tctdbqryaddcond(search, "words", TDBQCSTRAND, query.argument.c_str());
    }
    if (limit > 0) tctdbqrysetlimit(search, limit, 0);
    TCLIST* const keys = tctdbqrysearch(search);
    tctdbqrydel(search);
    return keys;
  }

  const std::vector<std::string>* columns_ = nullptr;
  TCTDB* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TextsMain<hako::compare::TextsTokyo>(argc, argv); }
