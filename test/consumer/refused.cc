// Mistakes that must not compile. house/Refused compiles this file as it is, and once for each line
//   #ifdef NAME  // refused: MESSAGE
// with NAME defined: then it must fail, and a line of the errors must contain MESSAGE. The part after the
// #else is the mistake put right.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/hako.h"

namespace {

using Value = std::optional<std::string_view>;
constexpr std::string_view kKeys[] = {"a", "b"};

hako::Status ProcessReturnsAString(hako::HashDBM<>& db, std::string& text) {
#ifdef PROCESS_RETURNS_A_STRING  // refused: returns exactly hako::Action
  return db.Process("k", [&](Value) { return text; });
#else
  return db.Process("k", [&](Value) { return hako::Action::Set(text); });
#endif
}

hako::Status ProcessReturnsAnOptional(hako::TreeDBM<>& db) {
#ifdef PROCESS_RETURNS_AN_OPTIONAL  // refused: returns exactly hako::Action
  return db.Process("k", [](Value) -> std::optional<hako::Action> { return hako::Action::Remove(); });
#else
  return db.Process("k", [](Value) -> hako::Action { return hako::Action::Remove(); });
#endif
}

hako::Status ProcessReturnsBool(hako::TinyDBM<>& db) {
#ifdef PROCESS_RETURNS_BOOL  // refused: returns exactly hako::Action
  return db.Process("k", [](Value value) { return value.has_value(); });
#else
  bool found = false;
  return db.Process("k", [&](Value value) { found = value.has_value(); });
#endif
}

hako::Status ProcessTakesNoOptional(hako::BabyDBM<>& db) {
#ifdef PROCESS_TAKES_NO_OPTIONAL  // refused: takes std::optional<std::string_view>
  return db.Process("k", [](std::string_view) { return hako::Action::Remove(); });
#else
  return db.Process("k", [](Value) { return hako::Action::Remove(); });
#endif
}

hako::Status ProcessReadsBlindly(hako::AnyDBM& db) {
#ifdef PROCESS_READS_BLINDLY  // refused: that only reads takes std::optional<std::string_view>
  return db.Process("k", [](bool) {});
#else
  return db.Process("k", [](Value) {});
#endif
}

hako::Status ProcessByNumber(hako::ArrayDBM<>& db, const std::string& text) {
#ifdef PROCESS_BY_NUMBER  // refused: returns exactly hako::Action
  return db.Process(7, [&](Value) { return text; });
#else
  return db.Process(7, [&](Value) { return hako::Action::Set(text); });
#endif
}

hako::Status ProcessOfAnIterator(hako::HashDBM<>::Iterator& it) {
#ifdef PROCESS_OF_AN_ITERATOR  // refused: returns exactly hako::Action
  return it.Process([](Value) { return std::optional(hako::Action::Remove()); });
#else
  return it.Process([](Value) { return hako::Action::Remove(); });
#endif
}

hako::Status ProcessMultiReturnsBool(hako::HashDBM<>& db) {
#ifdef PROCESS_MULTI_RETURNS_BOOL  // refused: where std::nullopt aborts the call
  return db.ProcessMulti(kKeys, [](std::size_t, Value) { return false; });
#else
  return db.ProcessMulti(kKeys, [](std::size_t, Value) -> std::optional<hako::Action> { return std::nullopt; });
#endif
}

hako::Status ProcessMultiWithoutIndex(hako::AnyDBM& db) {
#ifdef PROCESS_MULTI_WITHOUT_INDEX  // refused: takes (std::size_t index, std::optional<std::string_view> value)
  return db.ProcessMulti(kKeys, [](Value) { return hako::Action::Remove(); });
#else
  return db.ProcessMulti(kKeys, [](std::size_t, Value) { return hako::Action::Remove(); });
#endif
}

hako::Status ProcessEachReturnsBool(hako::HashDBM<>& db) {
#ifdef PROCESS_EACH_RETURNS_BOOL  // refused: To stop early, use an iterator
  return db.ProcessEach([](std::string_view, std::string_view) { return false; });
#else
  return db.ProcessEach([](std::string_view, std::string_view) {});
#endif
}

hako::Status ProcessEachReturnsAStatus(hako::AnyDBM& db) {
#ifdef PROCESS_EACH_RETURNS_A_STATUS  // refused: To stop early, use an iterator
  return db.ProcessEach([](std::string_view, std::string_view) { return hako::Status(); });
#else
  return db.ProcessEach([](std::string_view, std::string_view) {});
#endif
}

hako::Status ProcessEachOfATree(hako::TreeDBM<>& db) {
#ifdef PROCESS_EACH_OF_A_TREE  // refused: To stop early, use an iterator
  return db.ProcessEach([](std::string_view, std::string_view) { return hako::Action::Remove(); });
#else
  return db.ProcessEach([](std::string_view, std::string_view) {});
#endif
}

hako::Status ProcessEachParallelReturnsBool(hako::ArrayDBM<>& db) {
#ifdef PROCESS_EACH_PARALLEL_RETURNS_BOOL  // refused: To stop early, use an iterator
  return db.ProcessEachParallel(2, [](std::string_view, std::string_view) { return true; });
#else
  return db.ProcessEachParallel(2, [](std::string_view, std::string_view) {});
#endif
}

hako::Status GetReturnsAValue(hako::HashDBM<>& db, std::size_t& size) {
#ifdef GET_RETURNS_A_VALUE  // refused: the visitor of Get takes std::string_view and returns void
  return db.Get("k", [](std::string_view value) { return value.size(); });
#else
  return db.Get("k", [&](std::string_view value) { size = value.size(); });
#endif
}

hako::Status GetMultiReturnsBool(hako::TreeDBM<>& db) {
#ifdef GET_MULTI_RETURNS_BOOL  // refused: the visitor of GetMulti takes
  return db.GetMulti(kKeys, [](std::size_t, Value) { return true; });
#else
  return db.GetMulti(kKeys, [](std::size_t, Value) {});
#endif
}

hako::Status GetMultiByNumber(hako::ArrayDBM<>& db, const std::vector<std::uint64_t>& ids) {
#ifdef GET_MULTI_BY_NUMBER  // refused: the visitor of GetMulti takes
  return db.GetMulti(ids, [](std::size_t, Value) { return true; });
#else
  return db.GetMulti(ids, [](std::size_t, Value) {});
#endif
}

hako::Status ProcessFirstReturnsBool(hako::BabyDBM<>& db) {
#ifdef PROCESS_FIRST_RETURNS_BOOL  // refused: the visitor of ProcessFirst takes
  return db.ProcessFirst([](std::string_view, std::string_view) { return true; });
#else
  return db.ProcessFirst([](std::string_view, std::string_view) { return hako::Action::Remove(); });
#endif
}

hako::Status ActionOfATemporary(hako::HashDBM<>& db, std::string& text) {
#ifdef ACTION_OF_A_TEMPORARY  // refused: deleted
  return db.Process("k", [&](Value) { return hako::Action::Set(std::to_string(text.size())); });
#else
  return db.Process("k", [&](Value) {
    text = std::to_string(text.size());
    return hako::Action::Set(text);
  });
#endif
}

hako::Action ActionWithATimeOfATemporary(const std::string& text) {
#ifdef ACTION_WITH_A_TIME_OF_A_TEMPORARY  // refused: deleted
  return hako::Action::Set(text + "!", 1);
#else
  return hako::Action::Set(text, 1);
#endif
}

hako::Action ActionKeepingTheTimeOfATemporary(const std::string& text) {
#ifdef ACTION_KEEPING_THE_TIME_OF_A_TEMPORARY  // refused: deleted
  return hako::Action::SetKeepingExpiry(text + "!");
#else
  return hako::Action::SetKeepingExpiry(text);
#endif
}

void ExpectOfATemporary(std::vector<hako::Exchange>& exchanges, const std::string& text) {
#ifdef EXPECT_OF_A_TEMPORARY  // refused: deleted
  exchanges.push_back({"k", hako::Expect::Value(text + "!"), hako::Action::Remove()});
#else
  exchanges.push_back({"k", hako::Expect::Value(text), hako::Action::Remove()});
#endif
}

hako::TinyOptions OnEvictionReturnsBool() {
#ifdef ON_EVICTION_RETURNS_BOOL  // refused: on_eviction
  hako::TinyOptions options;
  options.on_eviction = [](std::string_view, std::string_view) { return true; };
  return options;
#else
  hako::TinyOptions options;
  options.on_eviction = [](std::string_view, std::string_view) {};
  return options;
#endif
}

hako::TransferOptions OnDamageReturnsAStatus() {
#ifdef ON_DAMAGE_RETURNS_A_STATUS  // refused: on_damage
  hako::TransferOptions options;
  options.on_damage = [](const hako::Status& status) { return status; };
  return options;
#else
  hako::TransferOptions options;
  options.on_damage = [](const hako::Status&) {};
  return options;
#endif
}

bool PassDamageReturnsBool(hako::TreeDBM<>::Iterator& it) {
#ifdef PASS_DAMAGE_RETURNS_BOOL  // refused: the result of on_damage would be ignored
  return it.PassDamage([](const hako::Status&) { return false; });
#else
  return it.PassDamage([](const hako::Status&) {});
#endif
}

// A string is a span of its bytes: of an empty one nothing was copied.
hako::Status GetIntoAStringByReference(hako::HashDBM<>& db, std::string& value) {
#ifdef GET_INTO_A_STRING_BY_REFERENCE  // refused: deleted
  return db.Get("k", value).status();
#else
  return db.Get("k", &value);
#endif
}

hako::Status GetIntoAStringByNumber(hako::ArrayDBM<>& db, std::string& value) {
#ifdef GET_INTO_A_STRING_BY_NUMBER  // refused: deleted
  return db.Get(17, value).status();
#else
  return db.Get(17, &value);
#endif
}

// A literal 0 or nullptr is a null pointer to characters.
hako::Status KeyIsZero(hako::HashDBM<>& db) {
#ifdef KEY_IS_ZERO  // refused: no known conversion
  return db.Get(0).status();
#else
  return db.Get("0").status();
#endif
}

hako::Status ValueIsNull(hako::AnyDBM& db) {
#ifdef VALUE_IS_NULL  // refused: no known conversion
  return db.Set("k", nullptr);
#else
  return db.Set("k", {});
#endif
}

hako::Status DelimiterIsACharacter(hako::TinyDBM<>& db) {
#ifdef DELIMITER_IS_A_CHARACTER  // refused: StringArg
  return db.Append("k", "v", ',');
#else
  return db.Append("k", "v", ",");
#endif
}

hako::Status GetIntoNothing(hako::TreeDBM<>& db) {
#ifdef GET_INTO_NOTHING  // refused: deleted
  return db.Get("k", nullptr);
#else
  return db.Contains("k").status();
#endif
}

hako::Status RangeUpToNull(hako::TreeDBM<>& db) {
#ifdef RANGE_UP_TO_NULL  // refused: StringArg
  return db.RemoveRange("k", nullptr).status();
#else
  return db.RemoveRange("k", std::nullopt).status();
#endif
}

hako::Status NumberOfARecordIsADouble(hako::ArrayDBM<>& db, double number) {
#ifdef NUMBER_OF_A_RECORD_IS_A_DOUBLE  // refused: no known conversion
  return db.Set(number, "v");
#else
  return db.Set(static_cast<int>(number), "v");
#endif
}

hako::Status IncrementByADouble(hako::HashDBM<>& db) {
#ifdef INCREMENT_BY_A_DOUBLE  // refused: IntegerArg
  return db.Increment("k", 1.5).status();
#else
  return db.Increment("k", -1).status();
#endif
}

std::vector<hako::KeyValue> RecordWithoutAValue() {
#ifdef RECORD_WITHOUT_A_VALUE  // refused: KeyValue
  return {{"k", nullptr}};
#else
  return {{"k", {}}};
#endif
}

hako::Value CellByNumber(const hako::Row& row) {
#ifdef CELL_BY_NUMBER  // refused: StringArg
  return row[0];
#else
  return row["0"];
#endif
}

hako::Status StatusIsIgnored(hako::HashDBM<>& db) {
#ifdef A_STATUS_IS_IGNORED  // refused: nodiscard
  db.Set("k", "v");
  return {};
#else
  return db.Set("k", "v");
#endif
}

hako::Status UpdateOfATemporaryTransaction(hako::HashDBM<>& db) {
#ifdef UPDATE_OF_A_TEMPORARY_TRANSACTION  // refused: 'this' argument
  return hako::Transaction(db).Replace("k", "v");
#else
  hako::Transaction transaction(db);
  HAKO_RETURN_IF_ERROR(transaction.Replace("k", "v"));
  return transaction.Commit();
#endif
}

hako::Status TransactionOfAPointer(const std::unique_ptr<hako::TreeDBM<>>& db) {
#ifdef TRANSACTION_OF_A_POINTER  // refused: is of a database, as *db
  hako::Transaction transaction(db);
#else
  hako::Transaction transaction(*db);
#endif
  return transaction.Commit();
}

}  // namespace

int main() {
  return sizeof(&ProcessReturnsAString) + sizeof(&ProcessReturnsAnOptional) + sizeof(&ProcessReturnsBool) +
                     sizeof(&ProcessTakesNoOptional) + sizeof(&ProcessReadsBlindly) + sizeof(&ProcessByNumber) +
                     sizeof(&ProcessOfAnIterator) + sizeof(&ProcessMultiReturnsBool) + sizeof(&ProcessMultiWithoutIndex) +
                     sizeof(&ProcessEachReturnsBool) + sizeof(&ProcessEachReturnsAStatus) + sizeof(&ProcessEachOfATree) +
                     sizeof(&ProcessEachParallelReturnsBool) + sizeof(&GetReturnsAValue) + sizeof(&GetMultiReturnsBool) +
                     sizeof(&GetMultiByNumber) + sizeof(&ProcessFirstReturnsBool) + sizeof(&ActionOfATemporary) +
                     sizeof(&ActionWithATimeOfATemporary) + sizeof(&ActionKeepingTheTimeOfATemporary) + sizeof(&ExpectOfATemporary) +
                     sizeof(&OnEvictionReturnsBool) + sizeof(&OnDamageReturnsAStatus) + sizeof(&PassDamageReturnsBool) +
                     sizeof(&GetIntoAStringByReference) + sizeof(&GetIntoAStringByNumber) + sizeof(&KeyIsZero) + sizeof(&ValueIsNull) +
                     sizeof(&DelimiterIsACharacter) + sizeof(&GetIntoNothing) + sizeof(&RangeUpToNull) + sizeof(&NumberOfARecordIsADouble) +
                     sizeof(&IncrementByADouble) + sizeof(&RecordWithoutAValue) + sizeof(&CellByNumber) + sizeof(&StatusIsIgnored) +
                     sizeof(&UpdateOfATemporaryTransaction) + sizeof(&TransactionOfAPointer) ==
                 0
             ? 1
             : 0;
}
