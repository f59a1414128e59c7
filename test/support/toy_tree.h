// A page tree over the toy space, and a std::map that it must equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/dbm/dbm.h"
#include "hako/tree/page_tree.h"
#include "support/status_matchers.h"
#include "support/toy_page_space.h"

namespace hako {

template <class PageSpace, Comparator Compare>
class ToyTree {
 public:
  using Space = PageSpace;
  using Tree = tree::PageTree<Space, Compare>;
  struct Less {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return Compare::Compare(a, b) < 0; }
  };
  using Model = std::map<std::string, std::string, Less>;
  static constexpr unsigned kPageSize = 512;

  explicit ToyTree(std::uint64_t seed = 1) : space(seed), tree(space, kPageSize) { EXPECT_THAT(tree.Create(), IsOk()); }

  Status Set(std::string_view key, std::string_view value) { return Process(key, Action::Set(value)); }
  Status Remove(std::string_view key) { return Process(key, Action::Remove()); }
  template <class V>
  Status Process(std::string_view key, V&& visit) {
    return CatchNoMemory([&] { return tree.template Process<Action>(*writers.Mine(), key, visit); });
  }
  StatusOr<std::string> Get(std::string_view key) {
    std::string value;
    const auto sink = [&value](std::size_t size) {
      value.resize(size);
      return value.data();
    };
    HAKO_RETURN_IF_ERROR(tree.Fetch(writers, key, sink));
    return value;
  }

  // All records by a scan from leaf to leaf, upwards or downwards.
  Model All(bool downwards) {
    Model all;
    typename Tree::Copy copy;
    std::string key;
    for (tree::Seek seek = downwards ? tree::Seek::kLast : tree::Seek::kFirst;; seek = downwards ? tree::Seek::kBefore : tree::Seek::kAt) {
      const Status status = tree.ReadLeaf(seek, key, &copy, true);
      EXPECT_THAT(status, IsOk());
      if (!status.ok()) return all;
      const typename Tree::View page = copy.view();
      for (unsigned i = 0; i < page.count(); ++i) {
        std::string found;
        tree::PageBuilder<Space, Compare>::CopyKeyOf(page, i, &found);
        StatusOr<std::string> value = Get(found);
        EXPECT_THAT(value, IsOk());
        EXPECT_TRUE(all.emplace(std::move(found), value.ok() ? *std::move(value) : "").second);
      }
      const format::PageTail tail = page.tail();
      if ((tail.edges & (downwards ? format::PageTail::kNoLow : format::PageTail::kNoHigh)) != 0) return all;
      key.assign(downwards ? page.low(tail) : page.high(tail));
    }
  }
  std::uint64_t Count() {
    return tree.Count([this](auto&& visit) { writers.ForEach(visit); });
  }

  void ExpectEqual(const Model& model) {
    space.refused = ~std::uint64_t{0};
    space.ExpectConsistent();
    EXPECT_EQ(Count(), model.size());
    space.is_alone = true;
    EXPECT_THAT(tree.Verify(model.size()), IsOk());
    space.is_alone = false;
    if constexpr (Space::kResident) {
      EXPECT_THAT(tree.VerifyBeside(), IsOk());
      std::size_t pages = 0;
      tree.ForEachPage([&pages](unsigned, unsigned size, unsigned used) {
        ++pages;
        EXPECT_LE(used, size);
      });
      EXPECT_EQ(pages, space.num_pages()) << "pages are lost";
    }
    EXPECT_EQ(All(false), model);
    EXPECT_EQ(All(true), model);
    std::size_t num_long = 0;
    for (const auto& [key, value] : model) num_long += value.size() > kPageSize / 4 ? 1u : 0u;
    EXPECT_EQ(space.num_long(), num_long) << "long values are lost";
    space.ExpectConsistent();
  }

  Space space;
  Tree tree;
  mutable sync::WriterStates<typename Space::WriterState> writers;
};

}  // namespace hako
