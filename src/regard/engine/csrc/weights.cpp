#include "weights.h"

#include <stdexcept>

namespace regard {

namespace {

template <class Sizes>
std::string in_words(const Sizes& shape) {
  std::string words;
  for (const std::int64_t size : shape) {
    words += (words.empty() ? "" : " x ") + std::to_string(size);
  }
  return words.empty() ? "a number" : words;
}

}  // namespace

const float* Reader::read(const std::string& name, std::initializer_list<std::int64_t> shape) {
  const auto found = weights_.find(name);
  if (found == weights_.end()) throw std::invalid_argument("there is no weight " + name);
  const Array& array = found->second;
  if (array.shape != std::vector<std::int64_t>(shape)) {
    throw std::invalid_argument("weight " + name + " is " + in_words(array.shape) + ", not " +
                                in_words(shape));
  }
  if (array.data == nullptr) throw std::invalid_argument("weight " + name + " has no data");
  read_.insert(name);
  return array.data;
}

std::vector<float> Reader::copy(const std::string& name,
                                std::initializer_list<std::int64_t> shape) {
  const float* data = read(name, shape);
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return {data, data + count};
}

void Reader::finish() const {
  for (const auto& [name, array] : weights_) {
    if (!read_.contains(name)) throw std::invalid_argument("weight " + name + " is unknown");
  }
}

}  // namespace regard
