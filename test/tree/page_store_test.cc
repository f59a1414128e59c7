// The PageStore of a TreeDBM: committed images exist, others do not, and readers do not block a
// truncation of the file.
#include "hako/tree/file/page_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/checked_value.h"
#include "support/fault_file.h"
#include "support/hooked_file.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako::tree {
namespace {

using Device = FaultFile<MemoryFile>;
using Store = PageStore<Device>;

// A file and its PageStore. The image of page `id` is a checked value of that key.
template <class S>
std::uint64_t MoveAll(S& store) {
  auto mover = store.BeginMoving();
  EXPECT_THAT(mover.status(), IsOk());
  return mover->num_nodes() + mover->Move(~std::uint64_t{0}).value_or(0);
}

class PageStoreTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kIdEnd = 1 << 20;

  void SetUp() override { Open(); }
  void Open() {
    store_.reset();
    auto opened = Store::Open(Device(file_.Share(), plan_), "order", "none", 8192);
    ASSERT_THAT(opened.status(), IsOk());
    store_ = *std::move(opened);
  }
  static std::string ImageOf(std::uint32_t id, std::size_t size, std::uint64_t salt) {
    return CheckedValue(std::to_string(id), size, salt);
  }
  Status Begin() {
    return store_->Begin([](std::uint32_t, std::uint32_t) {});
  }
  Status Put(std::uint32_t id, std::size_t size, std::uint64_t salt) {
    const std::string image = ImageOf(id, size, salt);
    return store_->Put(id, std::as_bytes(std::span(image)));
  }
  Status Commit() {
    return store_->Commit([](Store::Super& super) { super.id_end = kIdEnd; });
  }
  // Checks that the page has this image, with zeros up to the next unit.
  static Status ExpectImage(Store& store, std::uint32_t id, std::size_t size, std::uint64_t salt) {
    std::vector<std::byte> bytes(format::kPageImageMax);
    HAKO_ASSIGN_OR_RETURN(const std::size_t found, store.pages().Read(id, bytes));
    std::string expected = ImageOf(id, size, salt);
    expected.resize((size + format::kTreeUnit - 1) / format::kTreeUnit * format::kTreeUnit);
    if (found == expected.size() && std::memcmp(bytes.data(), expected.data(), found) == 0) return absl::OkStatus();
    return absl::UnknownError("another image");
  }
  Status Expect(std::uint32_t id, std::size_t size, std::uint64_t salt) { return ExpectImage(*store_, id, size, salt); }
  // A store of the file as after a crash.
  StatusOr<std::unique_ptr<Store>> OpenCopy() {
    std::vector<std::byte> bytes(file_.Size());
    HAKO_RETURN_IF_ERROR(file_.ReadAt(0, bytes));
    MemoryFile copy(std::uint64_t{1} << 30);
    HAKO_RETURN_IF_ERROR(copy.Resize(bytes.size()));
    HAKO_RETURN_IF_ERROR(copy.WriteAt(0, bytes));
    return Store::Open(Device(std::move(copy), std::make_shared<FaultPlan>()), "order", "none", 8192);
  }

  MemoryFile file_{std::uint64_t{1} << 30};
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::unique_ptr<Store> store_;
};

TEST_F(PageStoreTest, KeepsCommittedPages) {
  Random random(TestSeed());
  std::map<std::uint32_t, std::pair<std::size_t, std::uint64_t>> committed, now;
  std::string value;
  for (std::uint64_t round = 0; round < 30; ++round) {
    ASSERT_THAT(Begin(), IsOk());
    for (int i = 0; i < 100; ++i) {
      const auto id = static_cast<std::uint32_t>(random.OneIn(10) ? random.Below(kIdEnd) : 1000 + random.Below(200));
      if (random.OneIn(4)) {
        ASSERT_THAT(store_->Forget(id), IsOk());
        now.erase(id);
      } else {
        now[id] = {random.Between(1, random.OneIn(10) ? format::kPageImageMax : 2000), round};
        ASSERT_THAT(Put(id, now[id].first, now[id].second), IsOk());
      }
    }
    const bool commits = !random.OneIn(3);
    if (commits) {
      ASSERT_THAT(Commit(), IsOk());
      committed = now;
    }
    if (!commits || random.OneIn(2)) {
      Open();
      now = committed;
    }
    for (const auto& [id, image] : now) ASSERT_THAT(Expect(id, image.first, image.second), IsOk()) << id;
    ASSERT_THAT(Expect(999, 1, 0), StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_LE(file_.Size(), 16u << 20) << "what is free is used again";
}

TEST_F(PageStoreTest, KeepsLongValues) {
  ASSERT_THAT(Begin(), IsOk());
  const std::vector<std::size_t> sizes = {1, 511, 512, 513, 100'000, 1 << 20, (1 << 20) + 1, 3'000'001};
  for (std::uint32_t i = 0; i < sizes.size(); ++i) ASSERT_THAT(store_->PutLong(100 + i, ImageOf(i, sizes[i], 1)), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  Open();
  std::string value;
  const auto read = [&](std::uint32_t id, std::size_t size) {
    value.resize(size);
    return store_->pages().ReadLong(id, store_->pages().EntryOf(id).value(), value);
  };
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    ASSERT_THAT(read(100 + i, sizes[i]), IsOk());
    EXPECT_TRUE(value == ImageOf(i, sizes[i], 1)) << sizes[i];
  }
  EXPECT_THAT(read(100, 600), StatusIs(absl::StatusCode::kDataLoss)) << "it is not so long";
  EXPECT_THAT(read(99, 1), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(PageStoreTest, RefusesADamagedImage) {
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= 3; ++id) ASSERT_THAT(Put(id, 700, 1), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  std::vector<std::byte> bytes(file_.Size());
  ASSERT_THAT(file_.ReadAt(0, bytes), IsOk());
  const std::string image = ImageOf(2, 700, 1);
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  const auto found = std::search(begin, begin + bytes.size(), image.begin(), image.end());
  const auto offset = static_cast<std::uint64_t>(found - begin);
  ASSERT_LT(offset, bytes.size());
  for (const std::uint64_t at : {offset, offset + 699, offset + 1023}) {
    const std::byte damaged = bytes[at] ^ std::byte{4};
    ASSERT_THAT(file_.WriteAt(at, {&damaged, 1}), IsOk());
    EXPECT_THAT(Expect(2, 700, 1), StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("page 2 fails its checksum")));
    EXPECT_THAT(Expect(3, 700, 1), IsOk());
    ASSERT_THAT(file_.WriteAt(at, {&bytes[at], 1}), IsOk());
    EXPECT_THAT(Expect(2, 700, 1), IsOk());
  }
}

// Each write or resize lacks space in turn: the file is as of the last checkpoint, and the next one
// succeeds.
TEST_F(PageStoreTest, LosesNothingWithoutSpace) {
  constexpr std::uint32_t kPages = 300;
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= kPages; ++id) ASSERT_THAT(Put(id, 5000, 0), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  std::uint64_t committed = 0;
  for (const FaultKind kind : {FaultKind::kWrite, FaultKind::kResize}) {
    for (std::uint64_t call = 1;; ++call) {
      SCOPED_TRACE(call);
      const std::uint64_t salt = committed + 1;
      const auto put_all = [&]() -> Status {
        HAKO_RETURN_IF_ERROR(Begin());
        for (std::uint32_t id = 1; id <= kPages; ++id) HAKO_RETURN_IF_ERROR(Put(id, 5000, salt));
        return Commit();
      };
      ASSERT_OK_AND_ASSIGN(const auto pinned, store_->Pin());
      plan_->Arm({.kind = kind, .call = call, .status = absl::ResourceExhaustedError("no space"), .is_short = true});
      const Status status = put_all();
      plan_->Disarm();
      if (status.ok()) {
        store_->Unpin();
        committed = salt;
        break;
      }
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
      store_->Unpin();
      ASSERT_THAT(Begin(), IsOk());
      for (std::uint32_t id = 1; id <= kPages; ++id) ASSERT_THAT(Put(id, 5000, salt), IsOk());
      ASSERT_OK_AND_ASSIGN(auto copy, OpenCopy());
      for (std::uint32_t id = 1; id <= kPages; ++id) {
        ASSERT_THAT(ExpectImage(*copy, id, 5000, committed), IsOk()) << "page " << id << " was overwritten before its time";
      }
      ASSERT_THAT(Commit(), IsOk());
      committed = salt;
      for (std::uint32_t id = 1; id <= kPages; ++id) ASSERT_THAT(Expect(id, 5000, committed), IsOk());
    }
  }
  const auto used_bytes = [&] {
    EXPECT_THAT(Begin(), IsOk());
    EXPECT_THAT(Commit(), IsOk());
    return store_->file_bytes() - store_->free_bytes();
  };
  const std::uint64_t used = used_bytes();
  Open();
  EXPECT_EQ(used_bytes(), used) << "what is free was counted well";
}

TEST_F(PageStoreTest, CommitsNothingAfterAFailedSync) {
  ASSERT_THAT(Begin(), IsOk());
  ASSERT_THAT(Put(1, 100, 1), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  plan_->Arm({.kind = FaultKind::kSync});
  ASSERT_THAT(Begin(), IsOk());
  ASSERT_THAT(Put(1, 100, 2), IsOk());
  EXPECT_THAT(Commit(), StatusIs(absl::StatusCode::kUnknown));
  plan_->Disarm();
  EXPECT_THAT(Begin(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(store_->Health(), StatusIs(absl::StatusCode::kFailedPrecondition));
  Open();
  EXPECT_THAT(Expect(1, 100, 1), IsOk());
}

TEST_F(PageStoreTest, KnowsFreeBytesOnceACheckpointHasBegun) {
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= 500; ++id) ASSERT_THAT(Put(id, 1000, 1), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= 400; ++id) ASSERT_THAT(store_->Forget(id), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  ASSERT_THAT(store_->CutFile(), IsOk());
  const std::uint64_t free_bytes = store_->free_bytes();
  ASSERT_GT(free_bytes, 400u * 1000);
  Open();
  EXPECT_EQ(store_->free_bytes(), 0u) << "not known yet";
  ASSERT_THAT(store_->CountFree(), IsOk());
  EXPECT_EQ(store_->free_bytes(), free_bytes);
  Open();
  ASSERT_THAT(Begin(), IsOk());
  ASSERT_THAT(store_->CountFree(), IsOk());
  EXPECT_EQ(store_->free_bytes(), free_bytes);
}

// A value longer than the buffer, and pages before it, move to the free front of the file.
TEST_F(PageStoreTest, MovesImagesToAdjacentPlacesByFewWrites) {
  constexpr std::uint32_t kRemoved = 1100, kPages = 2000;
  constexpr std::size_t kLong = 3'000'000;
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= kPages; ++id) ASSERT_THAT(Put(id, 4000, id), IsOk());
  ASSERT_THAT(store_->PutLong(kPages + 1, ImageOf(kPages + 1, kLong, 1)), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= kRemoved; ++id) ASSERT_THAT(store_->Forget(id), IsOk());
  ASSERT_THAT(Commit(), IsOk());

  const std::uint64_t size = store_->file_bytes(), writes = plan_->call_count(FaultKind::kWrite);
  ASSERT_THAT(Begin(), IsOk());
  EXPECT_GT(MoveAll(*store_), 300u);
  EXPECT_LE(plan_->call_count(FaultKind::kWrite) - writes, 10u);
  ASSERT_THAT(Commit(), IsOk());
  ASSERT_THAT(store_->CutFile(), IsOk());
  EXPECT_LE(store_->file_bytes(), size - 3'500'000);
  Open();
  for (std::uint32_t id = kRemoved + 1; id <= kPages; ++id) ASSERT_THAT(Expect(id, 4000, id), IsOk()) << id;
  std::string value(kLong, '-');
  ASSERT_THAT(store_->pages().ReadLong(kPages + 1, store_->pages().EntryOf(kPages + 1).value(), value), IsOk());
  EXPECT_EQ(value, ImageOf(kPages + 1, kLong, 1));
}

TEST_F(PageStoreTest, FreesThePlacesOfImagesWhoseMoveFails) {
  for (std::uint64_t failing = 1; failing <= 20; ++failing) {
    store_.reset();
    file_ = MemoryFile(std::uint64_t{1} << 30);
    Open();
    ASSERT_THAT(Begin(), IsOk());
    for (std::uint32_t id = 1; id <= 600; ++id) ASSERT_THAT(Put(id, 4000, id), IsOk());
    ASSERT_THAT(Commit(), IsOk());
    ASSERT_THAT(Begin(), IsOk());
    for (std::uint32_t id = 1; id <= 300; ++id) ASSERT_THAT(store_->Forget(id), IsOk());
    ASSERT_THAT(Commit(), IsOk());
    ASSERT_THAT(Begin(), IsOk());
    ASSERT_OK_AND_ASSIGN(auto mover, store_->BeginMoving());
    plan_->Arm({.kind = FaultKind::kRead, .call = failing});
    const Status status = mover.Move(~std::uint64_t{0}).status();
    plan_->Disarm();
    ASSERT_THAT(status, StatusIs(absl::StatusCode::kUnknown));
    ASSERT_THAT(Commit(), IsOk());
    for (std::uint32_t id = 301; id <= 600; ++id) ASSERT_THAT(Expect(id, 4000, id), IsOk());
    const std::uint64_t free_bytes = store_->free_bytes();
    Open();
    ASSERT_THAT(store_->CountFree(), IsOk());
    EXPECT_EQ(store_->free_bytes(), free_bytes) << "space was lost";
  }
}

TEST_F(PageStoreTest, CopiesThePinnedCheckpoint) {
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= 500; ++id) ASSERT_THAT(Put(id, 1000, 1), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto pinned, store_->Pin());
  for (std::uint64_t salt = 2; salt <= 4; ++salt) {
    ASSERT_THAT(Begin(), IsOk());
    for (std::uint32_t id = 1; id <= 500; ++id) ASSERT_THAT(Put(id, 1000, salt), IsOk());
    ASSERT_THAT(Commit(), IsOk());
    ASSERT_THAT(store_->CutFile(), IsOk());
  }
  MemoryFile copied(std::uint64_t{1} << 30);
  ASSERT_THAT(store_->Copy(pinned, copied), IsOk());
  store_->Unpin();
  ASSERT_OK_AND_ASSIGN(auto copy, Store::Open(Device(std::move(copied), plan_), "order", "none", 8192));
  for (std::uint32_t id = 1; id <= 500; ++id) ASSERT_THAT(ExpectImage(*copy, id, 1000, 1), IsOk());
  ASSERT_THAT(Begin(), IsOk());
  const std::uint64_t size = file_.Size();
  for (std::uint32_t id = 1; id <= 500; ++id) ASSERT_THAT(Put(id, 1000, 5), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  EXPECT_EQ(file_.Size(), size) << "what was pinned is free now";
  for (std::uint32_t id = 1; id <= 500; ++id) ASSERT_THAT(Expect(id, 1000, 5), IsOk());
}

// Long values lie before the pages. When one is removed, pages move there from the end of the file,
// which is truncated.
TEST_F(PageStoreTest, ConcurrentReadsContinueWhileTheFileIsTruncated) {
  constexpr std::uint32_t kPages = 400, kLong = 300;
  const std::string value(4096, 'l');
  ASSERT_THAT(Begin(), IsOk());
  for (std::uint32_t id = 1; id <= kLong; ++id) ASSERT_THAT(store_->PutLong(kPages + id, value), IsOk());
  for (std::uint32_t id = 1; id <= kPages; ++id) ASSERT_THAT(Put(id, 1500, 0), IsOk());
  ASSERT_THAT(Commit(), IsOk());
  ASSERT_THAT(store_->CutFile(), IsOk());
  const std::uint64_t size = file_.Size();
  std::atomic<bool> done = false;
  std::atomic<int> mishaps = 0;
  RunThreads(3, [&](int thread) {
    if (thread == 0) {
      for (std::uint32_t id = 1; id <= kLong; ++id) {
        EXPECT_THAT(Begin(), IsOk());
        EXPECT_THAT(store_->Forget(kPages + id), IsOk());
        EXPECT_THAT(Commit(), IsOk());
        for (std::uint64_t moved = 1, rounds = 0; moved != 0 && rounds < 8; ++rounds) {
          EXPECT_THAT(Begin(), IsOk());
          moved = MoveAll(*store_);
          EXPECT_THAT(Commit(), IsOk());
        }
        EXPECT_THAT(store_->CutFile(), IsOk());
      }
      done = true;
      return;
    }
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    while (!done) mishaps += !Expect(static_cast<std::uint32_t>(random.Between(1, kPages)), 1500, 0).ok();
  });
  EXPECT_EQ(mishaps, 0);
  EXPECT_LE(file_.Size(), size - kLong * value.size() / 4 * 3);
}

// A file that stops once before a read, until others have had time to truncate it.
class HesitatingFile {
 public:
  struct Plan {
    std::atomic<bool> armed = false, reading = false, committed = false;
  };
  HesitatingFile(MemoryFile file, std::shared_ptr<Plan> plan) : file_(std::move(file)), plan_(std::move(plan)) {}

  std::uint64_t Size() const { return file_.Size(); }
  bool IsWritable() const { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    if (plan_->armed.exchange(false)) {
      const std::uint64_t size = Size();
      plan_->reading = true;
      while (!plan_->committed) std::this_thread::yield();
      for (int i = 0; i < 50 && Size() == size; ++i) std::this_thread::yield();
    }
    return file_.ReadAt(offset, out);
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) { return file_.WriteAt(offset, in); }
  Status Resize(std::uint64_t size) { return file_.Resize(size); }
  Status Sync() { return file_.Sync(); }
  Status Close() { return file_.Close(); }

 private:
  MemoryFile file_;
  std::shared_ptr<Plan> plan_;
};

// Each transfer of the store's thread waits until another thread has looked up a page.
TEST(PageStore, LooksUpPagesWhileTheDeviceWorks) {
  using Hooked = PageStore<HookedFile>;
  MemoryFile file(std::uint64_t{1} << 30);
  Hooked* store = nullptr;
  std::atomic<int> lookups{0};
  const std::thread::id owner = std::this_thread::get_id();
  const auto look = [&](Access) {
    if (store == nullptr || std::this_thread::get_id() != owner) return;
    auto found = std::async(std::launch::async, [&] { return store->pages().EntryOf(5).status(); });
    EXPECT_EQ(found.wait_for(std::chrono::seconds(60)), std::future_status::ready) << "waits for the device";
    if (testing::Test::HasFailure()) store = nullptr;
    EXPECT_THAT(found.get(), IsOk());
    ++lookups;
  };
  const auto open = [&] { return Hooked::Open(HookedFile(file.Share(), look), "order", "none", 8192); };
  const auto begin = [](Hooked& opened) { return opened.Begin([](std::uint32_t, std::uint32_t) {}); };
  const auto commit = [](Hooked& opened) { return opened.Commit([](Hooked::Super& super) { super.id_end = 100'000; }); };
  const auto put = [](Hooked& opened, std::uint32_t from) -> Status {
    const std::string image(100, 'x');
    for (std::uint32_t id = from; id < 50'000; id += 256) HAKO_RETURN_IF_ERROR(opened.Put(id, std::as_bytes(std::span(image))));
    return absl::OkStatus();
  };
  {
    ASSERT_OK_AND_ASSIGN(auto opened, open());
    ASSERT_THAT(begin(*opened), IsOk());
    ASSERT_THAT(put(*opened, 5), IsOk());
    ASSERT_THAT(put(*opened, 6), IsOk());
    ASSERT_THAT(commit(*opened), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto opened, open());
  ASSERT_THAT(opened->pages().EntryOf(5), IsOk());  // loads its node
  store = opened.get();
  std::vector<std::byte> out(format::kPageImageMax);
  ASSERT_THAT(opened->pages().Read(300 * 256 / 2, out).status(), StatusIs(absl::StatusCode::kDataLoss));  // no such page
  ASSERT_THAT(opened->pages().Read(1029, out), IsOk());
  ASSERT_THAT(opened->CountFree(), IsOk());
  ASSERT_THAT(begin(*opened), IsOk());
  ASSERT_THAT(put(*opened, 6), IsOk());
  ASSERT_THAT(commit(*opened), IsOk());
  ASSERT_THAT(begin(*opened), IsOk());
  EXPECT_GT(MoveAll(*opened), 0u);
  ASSERT_THAT(commit(*opened), IsOk());
  EXPECT_GT(lookups, 200);
  store = nullptr;
}

TEST(PageStore, ConcurrentReadFindsAPageMovedMeanwhile) {
  const auto plan = std::make_shared<HesitatingFile::Plan>();
  using Hesitating = PageStore<HesitatingFile>;
  ASSERT_OK_AND_ASSIGN(auto store, Hesitating::Open(HesitatingFile(MemoryFile(1 << 26), plan), "order", "none", 8192));
  const auto commit = [&] {
    ASSERT_THAT(store->Commit([](Hesitating::Super& super) { super.id_end = 100; }), IsOk());
    ASSERT_THAT(store->Begin([](std::uint32_t, std::uint32_t) {}), IsOk());
  };
  const std::string image(1024, 'i');
  ASSERT_THAT(store->Begin([](std::uint32_t, std::uint32_t) {}), IsOk());
  ASSERT_THAT(store->PutLong(1, std::string(100'000, 'l')), IsOk());
  ASSERT_THAT(store->Put(2, std::as_bytes(std::span(image))), IsOk());
  commit();
  ASSERT_THAT(store->Forget(1), IsOk());
  commit();
  plan->armed = true;
  std::thread reader([&] {
    std::vector<std::byte> bytes(format::kPageImageMax);
    EXPECT_THAT(store->pages().Read(2, bytes), IsOkAndHolds(image.size()));
    EXPECT_EQ(std::memcmp(bytes.data(), image.data(), image.size()), 0);
  });
  while (!plan->reading) std::this_thread::yield();
  EXPECT_GT(MoveAll(*store), 0u);
  commit();
  plan->committed = true;
  EXPECT_THAT(store->CutFile(), IsOk());
  reader.join();
  EXPECT_LT(store->file_bytes(), 100'000u);
}

}  // namespace
}  // namespace hako::tree
