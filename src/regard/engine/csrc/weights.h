// Reads the weights of a model by name, each once, with the shape that its config asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "engine.h"

namespace regard {

class Reader {
 public:
  explicit Reader(const Weights& weights) : weights_(weights) {}

  // The array of that name. Throws std::invalid_argument when it is missing or shaped otherwise.
  const float* read(const std::string& name, std::initializer_list<std::int64_t> shape);

  // A copy of it.
  std::vector<float> copy(const std::string& name, std::initializer_list<std::int64_t> shape);

  // Throws std::invalid_argument when there is an array that nobody has read.
  void finish() const;

 private:
  const Weights& weights_;
  std::set<std::string> read_;
};

}  // namespace regard
