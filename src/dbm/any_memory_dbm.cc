// AnyDBM over databases in memory, with or without a path.
#include <memory>

#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/tiny_dbm.h"

namespace hako {

template <class D, class Options>
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenInMemory(const AnyOptions& options, Options of_kind) {
  if (options.sync_interval.count() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a database of kind ", ToAbsl(options.ResolvedKind()),
                                                   " is saved as a whole: option sync_interval requires dbm=hash, tree or array"));
  }
  if (options.path.empty() && !options.log_archive.empty())
    return absl::InvalidArgumentError("option log_archive requires a database with a path");
  internal::TakeSharedOptions(options, &of_kind);
  return Over<D>([&] { return options.path.empty() ? D::Open(of_kind) : D::Open(options.path, of_kind, options.file); });
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenTinyInMemory(const AnyOptions& options) {
  TinyOptions tiny;
  tiny.num_records = options.num_records;
  tiny.align_pow = options.align_pow.value_or(tiny.align_pow);
  tiny.seed = options.seed;
  tiny.capacity_bytes = options.capacity_bytes;
  tiny.capacity_records = options.capacity_records;
  return OpenInMemory<TinyDBM<>>(options, tiny);
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenBabyInMemory(const AnyOptions& options) {
  BabyOptions baby;
  baby.page_size = options.page_size.value_or(baby.page_size);
  baby.max_bytes = options.max_bytes.value_or(baby.max_bytes);
  baby.capacity_bytes = options.capacity_bytes;
  baby.capacity_records = options.capacity_records;
  return OpenInMemory<BabyDBM<>>(options, baby);
}

StatusOr<RestoreReport> AnyDBM::RestoreSnapshot(const std::string& copy, const std::string& archive, const std::string& to,
                                                const RestoreOptions& options) {
  HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, internal::OpenCopy(copy, to, options));
  HAKO_ASSIGN_OR_RETURN(const auto source, internal::RestoreSource::Open(file, archive, options));
  HAKO_RETURN_IF_ERROR(source->has_ranges() ? internal::RestoreTo<BabyDBM<>>(file, *source, to)
                                            : internal::RestoreTo<TinyDBM<>>(file, *source, to));
  return source->report();
}

}  // namespace hako
