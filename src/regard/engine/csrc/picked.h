// The columns of the output projection that some running sentences need, side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "shortlist.h"

namespace regard {

// A layer of the columns that somebody needs, copied out of a whole one as they are packed there:
// a column's sums have the same bits in either. Those that come are added at the end; those that
// nobody needs any more stay until they are as many as the others. Where most of the whole layer is
// needed, it is used itself.
class PickedColumns {
 public:
  // `whole` must outlive it.
  explicit PickedColumns(const Linear& whole);

  // Counts who needs columns in and out, each list as it came in. `settle` then makes them ready.
  void need(const Ids& columns);
  void drop(const Ids& columns);
  void settle();

  // What to apply, and how many of its columns are in use.
  const Linear& layer() const { return all_ ? whole_ : picked_; }
  int width() const { return all_ ? whole_.out() : used_; }

  // Where a column that is needed lies in the layer; it stays there while `version` is the same.
  int place(std::int32_t column) const {
    return all_ ? column : places_[static_cast<std::size_t>(column)];
  }
  int version() const { return version_; }

 private:
  void use_all();
  void pick_again();
  void append(std::int32_t column);

  const Linear& whole_;
  Linear picked_;
  bool all_ = false;
  int used_ = 0, needed_ = 0, version_ = 0;
  std::vector<std::int32_t> users_;   // of each column of the whole layer
  std::vector<std::int32_t> places_;  // and where it is, or -1
  Ids fresh_;                         // needed since the last time, maybe no more
};

}  // namespace regard
