// Two file types that hold any other, at the cost of a virtual call per access: TestFile a File,
// MappedTestFile a mapped file with an identity. Tests of files that crash, fail, wait or record
// instantiate their databases on these two (Erased<F>), so that each database is compiled once and not
// for each of these files.
//
// Threads and errors: as the file inside.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/any_file.h"
#include "hako/file/file.h"

namespace hako {

// What the constructors ask of an F. They cannot ask whether it is a File: that depends on what an F
// can be made of, and so on them.
template <class F>
concept LooksLikeFile = requires(F& file) {
  file.Resize(0);
};

// Not a PathFile, unlike AnyFile: the log of a database on a TestFile is a TestFile too.
class TestFile {
 public:
  template <class F>
  requires(!std::same_as<F, TestFile> && LooksLikeFile<F>) TestFile(F file) : file_(std::move(file)) {}

  std::uint64_t Size() const { return file_.Size(); }
  bool IsWritable() const { return file_.IsWritable(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const { return file_.ReadAt(offset, out); }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) { return file_.WriteAt(offset, in); }
  Status Resize(std::uint64_t size) { return file_.Resize(size); }
  Status Sync() { return file_.Sync(); }
  Status Close() { return file_.Close(); }

 private:
  AnyFile file_;
};

class MappedTestFile {
 public:
  template <class F>
  requires(!std::same_as<F, MappedTestFile> && LooksLikeFile<F>) MappedTestFile(F file)
      : inside_(std::make_unique<Model<F>>(std::move(file))) {}

  std::uint64_t Size() const { return inside_->Size(); }
  bool IsWritable() const { return inside_->IsWritable(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const { return inside_->ReadAt(offset, out); }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) { return inside_->WriteAt(offset, in); }
  std::span<const std::byte> View(std::uint64_t offset, std::size_t size) const { return inside_->View(offset, size); }
  std::span<std::byte> MutableView(std::uint64_t offset, std::size_t size) { return inside_->MutableView(offset, size); }
  Status Resize(std::uint64_t size) { return inside_->Resize(size); }
  Status Sync() { return inside_->Sync(); }
  Status SyncRange(std::uint64_t offset, std::size_t size) { return inside_->SyncRange(offset, size); }
  FileIdentity Identity() const { return inside_->Identity(); }
  Status Close() { return inside_->Close(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual std::uint64_t Size() const = 0;
    virtual bool IsWritable() const = 0;
    virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const = 0;
    virtual Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) = 0;
    virtual std::span<const std::byte> View(std::uint64_t offset, std::size_t size) const = 0;
    virtual std::span<std::byte> MutableView(std::uint64_t offset, std::size_t size) = 0;
    virtual Status Resize(std::uint64_t size) = 0;
    virtual Status Sync() = 0;
    virtual Status SyncRange(std::uint64_t offset, std::size_t size) = 0;
    virtual FileIdentity Identity() const = 0;
    virtual Status Close() = 0;
  };

  template <class F>
  struct Model final : Interface {
    static_assert(MappedFile<F> && KernelBackedFile<F>);
    explicit Model(F f) : file(std::move(f)) {}
    std::uint64_t Size() const override { return file.Size(); }
    bool IsWritable() const override { return file.IsWritable(); }
    Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const override { return file.ReadAt(offset, out); }
    Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) override { return file.WriteAt(offset, in); }
    std::span<const std::byte> View(std::uint64_t offset, std::size_t size) const override { return file.View(offset, size); }
    std::span<std::byte> MutableView(std::uint64_t offset, std::size_t size) override { return file.MutableView(offset, size); }
    Status Resize(std::uint64_t size) override { return file.Resize(size); }
    Status Sync() override { return file.Sync(); }
    Status SyncRange(std::uint64_t offset, std::size_t size) override { return file.SyncRange(offset, size); }
    FileIdentity Identity() const override { return file.Identity(); }
    Status Close() override { return file.Close(); }
    F file;
  };

  std::unique_ptr<Interface> inside_;
};

// The one of the two that holds an F.
template <File F>
using Erased = std::conditional_t<MappedFile<F>, MappedTestFile, TestFile>;

static_assert(File<TestFile> && !MappedFile<TestFile> && !PathFile<TestFile>);
static_assert(MappedFile<MappedTestFile> && KernelBackedFile<MappedTestFile>);

}  // namespace hako
