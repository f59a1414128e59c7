// A build with HAKO_FEW_DATABASES compiles this in place of the source files that it leaves out: functions
// that return Unimplemented, which names the option, and the home of TinyDBM.
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/memory_home.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/table/table_dbm.h"

namespace hako {

template class MemoryHome<TinyDBM<>, MemoryMapParallelFile, TinyOptions>;  // memory_home.cc also compiles that of BabyDBM

namespace {

Status AbsentError(std::string_view what) {
  return absl::UnimplementedError(absl::StrCat(ToAbsl(what), " is not in this build: build hako with -D HAKO_FEW_DATABASES=OFF"));
}

}  // namespace

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenArrayFile(const AnyOptions&) { return AbsentError("dbm=array"); }
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenTinyInMemory(const AnyOptions&) { return AbsentError("dbm=tiny"); }
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenBabyInMemory(const AnyOptions&) { return AbsentError("dbm=baby"); }
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenPositionalFile(const AnyOptions&) { return AbsentError("file=pos"); }
StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenPositional(const std::string&, const TableOptions&) {
  return AbsentError("a table in a file that is read by position");
}
StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenInMemory(const TableOptions&) { return AbsentError("a table in memory"); }

StatusOr<SalvageReport> AnyDBM::Salvage(const std::string&, const std::string&, const FileOptions&) { return AbsentError("salvage"); }
StatusOr<SalvageReport> TableDBM::Salvage(const std::string&, const std::string&, const FileOptions&) { return AbsentError("salvage"); }

StatusOr<RestoreReport> AnyDBM::RestoreArrayFile(const std::string&, const std::string&, const std::string&, const RestoreOptions&) {
  return AbsentError("the restore of an array");
}
StatusOr<RestoreReport> AnyDBM::RestoreSnapshot(const std::string&, const std::string&, const std::string&, const RestoreOptions&) {
  return AbsentError("the restore of a snapshot");
}

}  // namespace hako
