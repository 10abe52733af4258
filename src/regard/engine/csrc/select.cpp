#include "select.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"

namespace regard {

Best::Best(int k)
    : k_(std::max(k, 1)), values_(static_cast<std::size_t>(k_)), columns_(values_.size()) {}

void Best::clear() {
  size_ = 0;
  floor_ = -std::numeric_limits<float>::infinity();
}

void Best::offer(const float* piece, int n, int first) {
  for (int i = 0; i < n; ++i) {
    i += first_above(piece + i, n - i, floor_);
    if (i < n) offer(piece[i], first + i);
  }
}

void Best::offer(float value, int column) {
  if (!(value > floor_)) return;
  int rank = size_ < k_ ? size_++ : k_ - 1;
  for (; rank > 0 && values_[rank - 1] < value; --rank) {
    values_[rank] = values_[rank - 1];
    columns_[rank] = columns_[rank - 1];
  }
  values_[rank] = value;
  columns_[rank] = column;
  if (size_ == k_) floor_ = values_[k_ - 1];
}

void Best::offer(const Best& other) {
  for (int rank = 0; rank < other.size_; ++rank) offer(other.values_[rank], other.columns_[rank]);
}

void LogSumExp::add(const float* piece, int n) {
  if (n > 0) add(piece, n, max(piece, n));
}

void LogSumExp::add(const float* piece, int n, float most) {
  LogSumExp alone;
  alone.max_ = most;
  alone.sum_ = sum_exp(piece, n, std::isfinite(alone.max_) ? alone.max_ : 0.0f);
  add(alone);
}

void LogSumExp::add(const LogSumExp& other) {
  // A sum of zero has nothing to add; NaN passes on.
  if (other.sum_ == 0) return;
  if (sum_ == 0) {
    *this = other;
    return;
  }
  // One of the two exponentials is 1.
  if (max_ >= other.max_) {
    sum_ += other.sum_ * std::exp(static_cast<double>(other.max_) - max_);
  } else {
    sum_ = sum_ * std::exp(static_cast<double>(max_) - other.max_) + other.sum_;
    max_ = other.max_;
  }
}

double LogSumExp::value() const {
  if (sum_ == 0) return -std::numeric_limits<double>::infinity();
  return std::isfinite(max_) ? max_ + std::log(sum_) : sum_ + std::log(sum_);
}

}  // namespace regard
