// A file whose type is chosen at run time, at the cost of a virtual call per access. AnyFile models
// File without refinements: an engine on it uses ReadAt and WriteAt, even if the wrapped file is
// mapped.
//
// Threads and errors: as the wrapped file.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

// Models PathFile (file/file.h).
class AnyFile {
 public:
  static constexpr std::string_view kMemoryMap = "mmap";  // MemoryMapParallelFile
  static constexpr std::string_view kPositional = "pos";  // PositionalParallelFile

  // Wraps an open file.
  template <class F>
  requires(!std::same_as<F, AnyFile> && File<F>) explicit AnyFile(F file) : inside_(std::make_unique<Model<F>>(std::move(file))) {}

  // Opens a file of `kind`, which is kMemoryMap or kPositional.
  static StatusOr<AnyFile> Open(const std::string& path, const FileOptions& options = {}, std::string_view kind = kMemoryMap) {
    if (kind == kMemoryMap) return OpenAs<MemoryMapParallelFile>(path, options);
    if (kind == kPositional) return OpenAs<PositionalParallelFile>(path, options);
    return absl::InvalidArgumentError(absl::StrCat("unknown file type '", ToAbsl(kind), "'"));
  }

  // See File.
  std::uint64_t Size() const { return inside_->Size(); }
  bool IsWritable() const { return inside_->IsWritable(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const { return inside_->ReadAt(offset, out); }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) { return inside_->WriteAt(offset, in); }
  Status Resize(std::uint64_t size) { return inside_->Resize(size); }
  Status Sync() { return inside_->Sync(); }
  Status Close() { return inside_->Close(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual std::uint64_t Size() const = 0;
    virtual bool IsWritable() const = 0;
    virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const = 0;
    virtual Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) = 0;
    virtual Status Resize(std::uint64_t size) = 0;
    virtual Status Sync() = 0;
    virtual Status Close() = 0;
  };

  template <File F>
  struct Model final : Interface {
    explicit Model(F f) : file(std::move(f)) {}
    std::uint64_t Size() const override { return file.Size(); }
    bool IsWritable() const override { return file.IsWritable(); }
    Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const override { return file.ReadAt(offset, out); }
    Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) override { return file.WriteAt(offset, in); }
    Status Resize(std::uint64_t size) override { return file.Resize(size); }
    Status Sync() override { return file.Sync(); }
    Status Close() override { return file.Close(); }
    F file;
  };

  template <PathFile F>
  static StatusOr<AnyFile> OpenAs(const std::string& path, const FileOptions& options) {
    HAKO_ASSIGN_OR_RETURN(F file, F::Open(path, options));
    return AnyFile(std::move(file));
  }

  std::unique_ptr<Interface> inside_;
};

static_assert(PathFile<AnyFile> && !MappedFile<AnyFile>);

}  // namespace hako
