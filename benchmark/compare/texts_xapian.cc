// Xapian: an index of words with their positions. The row is the document's data, and its key a term.
// It gets the words as hako folds them, so that both have the same ones. It has no substrings, and
// cannot index rows that are already stored.
#include <xapian.h>

#include "texts.h"

namespace hako::compare {

class TextsXapian {
 public:
  static constexpr const char* kName = "xapian";
  static constexpr unsigned kIndices = kWords;
  static constexpr bool kBuilds = false, kHasOwnWords = false, kFindsMore = false;

  bool Open(const std::string& path, const Texts& texts, unsigned indices, bool creates) {
    path_ = path + ".xapian";
    num_columns_ = texts.columns.size();
    has_words_ = indices != 0;
    terms_.set_max_word_length(200);  // as hako's; by default it leaves out words of more than 64 bytes
    if (creates)
      writer_ = Xapian::WritableDatabase(path_, Xapian::DB_CREATE_OR_OVERWRITE);
    else
      reader_ = Xapian::Database(path_);
    return true;
  }
  bool Put(const TextRow* rows, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      Xapian::Document document;
      document.set_data(std::string(rows[i].bytes));
      document.add_boolean_term("Q" + std::string(rows[i].key()));
      if (has_words_) {
        terms_.set_document(document);
        terms_.index_text(std::string(rows[i].words));
      }
      writer_.add_document(document);
    }
    return true;
  }
  bool Flush() {
    writer_.commit();
    return true;
  }
  bool Build(unsigned) { return false; }
  bool Merge(unsigned) { return true; }
  bool Compact() {
    reader_.compact(path_ + ".compact");
    reader_.close();
    std::filesystem::remove_all(path_);
    std::filesystem::rename(path_ + ".compact", path_);
    return true;
  }
  bool Close() {
    writer_.close();
    reader_.close();
    return true;
  }

  bool Answers(const TextQuery& query) { return query.IsOfWords(); }
  bool Count(const TextQuery& query, std::uint64_t* count) {
    const Xapian::MSet found = Run(query, 0, reader_.get_doccount());
    *count = found.get_matches_estimated();
    return found.get_matches_lower_bound() == found.get_matches_upper_bound();
  }
  bool First(const TextQuery& query, TableSum* sum, std::uint64_t* rows) {
    const Xapian::MSet found = Run(query, 10, 0);
    for (Xapian::MSetIterator it = found.begin(); it != found.end(); ++it, ++*rows) {
      const std::string data = it.get_document().get_data();
      const char* at = data.data();
      for (std::size_t i = 0; i < num_columns_; ++i) sum->Add(ReadCell(&at));
    }
    return true;
  }

 private:
  // In the order of the documents' numbers, which is that of the rows.
  Xapian::MSet Run(const TextQuery& query, Xapian::doccount rows, Xapian::doccount check_at_least) {
    Xapian::Enquire enquire(reader_);
    enquire.set_weighting_scheme(Xapian::BoolWeight());
    enquire.set_docid_order(Xapian::Enquire::ASCENDING);
    std::vector<std::string> words;
    for (std::size_t begin = 0, end = 0; end != query.argument.npos; begin = end + 1)
      words.push_back(query.argument.substr(begin, (end = query.argument.find(' ', begin)) - begin));
    const auto op = query.kind == TextQuery::kPhrase    ? Xapian::Query::OP_PHRASE
                    : query.kind == TextQuery::kNotWord ? Xapian::Query::OP_AND_NOT
                                                        : Xapian::Query::OP_AND;
    enquire.set_query(Xapian::Query(op, words.begin(), words.end()));
    return enquire.get_mset(0, rows, check_at_least);
  }

  std::string path_;
  std::size_t num_columns_ = 0;
  bool has_words_ = false;
  Xapian::WritableDatabase writer_;
  Xapian::Database reader_;
  Xapian::TermGenerator terms_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TextsMain<hako::compare::TextsXapian>(argc, argv); }
