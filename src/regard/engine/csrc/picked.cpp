#include "picked.h"

#include <algorithm>

namespace regard {

namespace {

constexpr int kLeast = 8 * kColumns;  // columns that there is room for at least

}  // namespace

PickedColumns::PickedColumns(const Linear& whole)
    : whole_(whole), users_(static_cast<std::size_t>(whole.out())),
      places_(static_cast<std::size_t>(whole.out()), -1) {}

void PickedColumns::need(const Ids& columns) {
  for (const std::int32_t column : columns) {
    const auto at = static_cast<std::size_t>(column);
    if (users_[at]++ > 0) continue;
    ++needed_;
    if (places_[at] < 0) fresh_.push_back(column);
  }
}

void PickedColumns::drop(const Ids& columns) {
  for (const std::int32_t column : columns) {
    if (--users_[static_cast<std::size_t>(column)] == 0) --needed_;
  }
}

void PickedColumns::settle() {
  // A copy pays when it saves a good part; not at once back when the last of that part leaves.
  const int most = whole_.out() / 4 * (all_ ? 2 : 3);
  if (needed_ > most) {
    use_all();
  } else if (all_ || used_ > 2 * needed_ + kLeast ||
             used_ + static_cast<int>(fresh_.size()) > picked_.out()) {
    pick_again();
  } else {
    for (const std::int32_t column : fresh_) append(column);
  }
  fresh_.clear();
}

void PickedColumns::use_all() {
  if (all_) return;
  all_ = true;
  picked_ = Linear();
  std::fill(places_.begin(), places_.end(), -1);
  ++version_;
}

void PickedColumns::pick_again() {
  const int room = std::max(needed_ + needed_ / 2, kLeast);
  if (all_ || room > picked_.out()) picked_ = Linear::of_zeros(room, whole_.in(), whole_.dtype());
  all_ = false;
  used_ = 0;
  std::fill(places_.begin(), places_.end(), -1);
  for (std::int32_t column = 0; column < whole_.out(); ++column) append(column);
  ++version_;
}

// If it is needed and not there.
void PickedColumns::append(std::int32_t column) {
  const auto at = static_cast<std::size_t>(column);
  if (users_[at] == 0 || places_[at] >= 0) return;
  picked_.take(used_, whole_, column);
  places_[at] = used_++;
}

}  // namespace regard
