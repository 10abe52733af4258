// Reads the weights of a model by name, each once, with the shape that its config asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "engine.h"
#include "kernels.h"
#include "table.h"

namespace regard {

// A layer's weights by their names: `bias` is empty where there is none. Where a matrix is several
// layers one below the other, this one's rows begin at `first` and the matrix has `all`.
struct Matrix {
  std::string weight;
  std::string bias;
  int first = 0;
  int all = 0;
};

class Reader {
 public:
  explicit Reader(const Weights& weights) : weights_(weights) {}

  // A layer and an embedding, packed here or as they were packed before. Throw as `read` does.
  Linear linear(const Matrix& matrix, int out, int in, Dtype dtype);
  Table table(const std::string& name, int count, int width, Dtype dtype);

  // The array of that name. Throws std::invalid_argument when it is missing or shaped otherwise.
  const float* read(const std::string& name, std::initializer_list<std::int64_t> shape);

  // A copy of it.
  std::vector<float> copy(const std::string& name, std::initializer_list<std::int64_t> shape);

  // Throws std::invalid_argument when there is an array or a section that nobody has read.
  void finish() const;

 private:
  const float* array(const std::string& name, const std::vector<std::int64_t>& shape);
  const std::byte* section(const std::string& name, std::size_t bytes);
  void note(const std::string& name, const void* data, std::size_t bytes);

  const Weights& weights_;
  std::set<std::string> read_;
};

}  // namespace regard
