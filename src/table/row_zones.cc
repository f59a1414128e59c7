#include "hako/table/row_zones.h"

#include <iterator>
#include <utility>

namespace hako::table {

// A zone keeps its nodes of the two orders while it moves, so that nothing can fail then.
void RowZones::Add(RowNumber number, std::string_view key) {
  const std::uint32_t index = number / kNumbersOfZone;
  if (index >= zones_.size()) zones_.resize(std::size_t{index} + 1);
  Bounds& zone = zones_[index];
  const std::size_t bit = number % kNumbersOfZone;
  if (zone.used.none()) {
    std::string least(key), most(key);
    zone.least.swap(least);
    zone.most.swap(most);
    by_least_.insert(index);
    struct Undo {
      RowZones& zones;
      const std::uint32_t index;
      ~Undo() {
        if (zones.zones_[index].used.none()) zones.by_least_.erase(index);
      }
    } const undo{*this, index};
    by_most_.insert(index);
    zone.used.set(bit);
    return;
  }
  const auto move = [&](auto& order, std::string& bound, std::uint64_t& num_moves) {
    std::string grown(key);
    auto node = order.extract(index);
    bound.swap(grown);
    order.insert(std::move(node));
    ++num_moves;
  };
  if (key < zone.least) move(by_least_, zone.least, num_least_moves_);
  if (key > zone.most) move(by_most_, zone.most, num_most_moves_);
  zone.used.set(bit);
}

void RowZones::Remove(RowNumber number) noexcept {
  const std::uint32_t index = number / kNumbersOfZone;
  if (index >= zones_.size() || !zones_[index].used.test(number % kNumbersOfZone)) return;
  Bounds& zone = zones_[index];
  zone.used.reset(number % kNumbersOfZone);
  if (zone.used.any()) return;
  by_least_.erase(index);
  by_most_.erase(index);
}

void RowZones::Clear() noexcept {
  by_least_.clear();
  by_most_.clear();
  zones_.clear();
}

bool RowZones::HasOrder(bool is_reversed) const {
  static constexpr std::ptrdiff_t kOverlapsMax = 8;
  if (by_least_.size() <= kOverlapsMax) return true;
  return is_reversed ? zones_[*std::next(by_most_.begin(), kOverlapsMax)].most < zones_[*by_most_.begin()].least
                     : zones_[*std::next(by_least_.begin(), kOverlapsMax)].least > zones_[*by_least_.begin()].most;
}

void RowZones::SeeNext(Seen& seen, std::size_t count, std::string_view from, std::string_view to, std::vector<Zone>* zones) const {
  if (seen.is_reversed_)
    SeeNext(by_most_, num_most_moves_, &Bounds::most, seen, count, from, to, zones);
  else
    SeeNext(by_least_, num_least_moves_, &Bounds::least, seen, count, from, to, zones);
}

// The zones before the last one were seen, unless a zone has moved since.
template <class Order>
void RowZones::SeeNext(const Order& order, std::uint64_t num_moves, std::string Bounds::*bound, Seen& seen, std::size_t count,
                       std::string_view from, std::string_view to, std::vector<Zone>* zones) const {
  if (std::exchange(seen.num_moves_, num_moves) != num_moves) seen.last_.reset();
  std::size_t num_added = 0;
  for (auto at = seen.last_ ? order.upper_bound(*seen.last_) : order.begin(); at != order.end() && num_added < count; ++at) {
    const Bounds& zone = zones_[*at];
    if (std::string_view(zone.most) < from || (!to.empty() && std::string_view(zone.least) >= to)) continue;
    if (!seen.zones_.insert(*at).second) continue;
    zones->push_back({*at, zone.*bound});
    ++num_added;
  }
  if (num_added != 0) seen.last_ = zones->back();
}

}  // namespace hako::table
