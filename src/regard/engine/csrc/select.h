// The best few of a row and the log of its sum of exponentials, from the row in pieces.
#pragma once

#include <limits>
#include <vector>

namespace regard {

// The k best of the columns offered, best first; among equals the one offered first.
class Best {
 public:
  explicit Best(int k = 1);

  void clear();
  // Column i of the piece is column first + i of the row. NaN and -inf are never chosen.
  void offer(const float* piece, int n, int first);
  void offer(float value, int column);
  void offer(const Best& other);

  int size() const { return size_; }  // below k while fewer were offered
  float value(int rank) const { return values_[rank]; }
  int column(int rank) const { return columns_[rank]; }
  float floor() const { return floor_; }  // what a value must exceed to be chosen

 private:
  int k_, size_ = 0;
  float floor_ = -std::numeric_limits<float>::infinity();
  std::vector<float> values_;
  std::vector<int> columns_;
};

// log(sum(exp(row))) of a row in pieces. The bits depend on where the cuts are and on the order,
// so cut rows in a way that is the same for any number of threads.
class LogSumExp {
 public:
  void add(const float* piece, int n);
  void add(const float* piece, int n, float most);  // the largest of the piece, as max() finds it
  void add(const LogSumExp& other);
  double value() const;  // -inf for nothing

 private:
  float max_ = -std::numeric_limits<float>::infinity();
  double sum_ = 0;
};

}  // namespace regard
