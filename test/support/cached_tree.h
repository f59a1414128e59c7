// A tree of cached pages on a file in memory, without the DBM around it: for tests of
// tree/file/buffer_pool.h that look at pages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"
#include "hako/dbm/dbm.h"
#include "hako/file/memory_file.h"
#include "hako/sync/writer_states.h"
#include "hako/tree/file/buffer_pool.h"
#include "hako/tree/file/checkpointer.h"
#include "hako/tree/page_tree.h"
#include "support/status_matchers.h"

namespace hako {

class CachedTree {
 public:
  using Cache = tree::BufferPool<MemoryFile>;
  using Tree = tree::PageTree<Cache, BytewiseComparator>;
  using View = Tree::View;

  CachedTree(MemoryFile file, std::uint64_t memory_bytes, unsigned page_size) {
    auto store = tree::PageStore<MemoryFile>::Open(std::move(file), BytewiseComparator::kName, NoCodec::kName, page_size).value();
    const auto root = std::pair(std::uint32_t{store->super().root}, std::uint64_t{store->super().num_records});
    cache_ = Cache::Create(std::move(store), {memory_bytes, memory_bytes / 2, View::kOrder}, [this] { is_asked_ = true; }).value();
    tree_ = std::make_unique<Tree>(*cache_, page_size);
    if (root.first != 0) {
      tree_->Attach(root.first, root.second);
    } else {
      EXPECT_THAT(tree_->Create(), IsOk());
      cache_->SetRoot(tree_->root_id());
    }
  }

  Cache& cache() { return *cache_; }
  Tree& tree() { return *tree_; }

  // A checkpoint follows at once when the cache asks for one.
  Status Set(std::string_view key, std::string_view value) {
    HAKO_RETURN_IF_ERROR(SetAlone(key, value));
    return std::exchange(is_asked_, false) ? Checkpoint() : absl::OkStatus();
  }
  // Without a checkpoint.
  Status SetAlone(std::string_view key, std::string_view value) {
    return tree_->Process<Action>(*writers_.Mine(), key, Action::Set(value));
  }
  Status Remove(std::string_view key) { return tree_->Process<Action>(*writers_.Mine(), key, Action::Remove()); }
  Status Get(std::string_view key) {
    return tree_->Fetch(writers_, key, [](std::size_t) -> char* { return nullptr; });
  }
  // Shows the record to a read visitor, with its leaf locked; to a multi visitor; and to an update
  // visitor that keeps it.
  Status Look(std::string_view key) {
    const auto look = [](std::optional<std::string_view>) -> void {};
    HAKO_RETURN_IF_ERROR(tree_->Process<void>(*writers_.Mine(), key, look));
    const auto keep_each = [](std::size_t, std::optional<std::string_view>) { return std::optional(Action::Keep()); };
    HAKO_RETURN_IF_ERROR(tree_->ProcessMulti(*writers_.Mine(), Batch<Action>{std::span(&key, 1), keep_each}));
    return tree_->Process<Action>(*writers_.Mine(), key, Action::Keep());
  }
  Status Checkpoint() {
    const auto for_each_writer = [this](auto&& visit) { writers_.ForEach(visit); };
    return tree::Checkpointer(*cache_).Checkpoint(for_each_writer, [&](format::TreeSuperBlock& super) {
      super.num_records = tree_->Count(for_each_writer);
      super.root = tree_->root_id();
    });
  }

  // Visits the pages whose lines are not locked: visit(id, line, page).
  template <class F>
  void ForEachUnlockedPage(F&& visit) {
    ForEachBelow(tree_->root_id(), visit);
  }

 private:
  template <class F>
  void ForEachBelow(std::uint32_t id, F& visit) {
    format::PageLine& line = cache_->lines()[id];
    if ((line.version & sync::VersionLock::kLocked) != 0) return;
    View page(cache_->memory(), line);
    visit(id, line, page);
    for (unsigned i = 0; page.level() > 0 && i < page.count(); ++i) ForEachBelow(page.child(i), visit);
  }

  sync::WriterStates<Cache::WriterState> writers_;
  bool is_asked_ = false;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Tree> tree_;
};

}  // namespace hako
