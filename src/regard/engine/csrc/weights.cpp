#include "weights.h"

#include <stdexcept>

#include "aligned.h"

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

std::size_t count_of(std::initializer_list<std::int64_t> shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

}  // namespace

const float* Reader::array(const std::string& name, const std::vector<std::int64_t>& shape) {
  const auto found = weights_.arrays.find(name);
  if (found == weights_.arrays.end()) throw std::invalid_argument("there is no weight " + name);
  const Array& array = found->second;
  if (array.shape != shape) {
    throw std::invalid_argument("weight " + name + " is " + in_words(array.shape) + ", not " +
                                in_words(shape));
  }
  if (array.data == nullptr) throw std::invalid_argument("weight " + name + " has no data");
  read_.insert(name);
  return array.data;
}

const std::byte* Reader::section(const std::string& name, std::size_t bytes) {
  const auto found = weights_.sections.find(name);
  if (found == weights_.sections.end()) throw std::invalid_argument("there is no section " + name);
  const auto [data, size] = found->second;
  if (size != bytes) {
    throw std::invalid_argument("section " + name + " has " + std::to_string(size) +
                                " bytes, not " + std::to_string(bytes));
  }
  if (data == nullptr || reinterpret_cast<std::uintptr_t>(data) % kLine != 0) {
    throw std::invalid_argument("section " + name + " does not begin on a cache line");
  }
  read_.insert(name);
  return data;
}

void Reader::note(const std::string& name, const void* data, std::size_t bytes) {
  if (weights_.made != nullptr) {
    (*weights_.made)[name] = {static_cast<const std::byte*>(data), bytes};
  }
}

const float* Reader::read(const std::string& name, std::initializer_list<std::int64_t> shape) {
  const std::size_t bytes = count_of(shape) * sizeof(float);
  if (weights_.packed) return reinterpret_cast<const float*>(section(name, bytes));
  const float* data = array(name, shape);
  note(name, data, bytes);
  return data;
}

std::vector<float> Reader::copy(const std::string& name,
                                std::initializer_list<std::int64_t> shape) {
  const float* data = read(name, shape);
  return {data, data + count_of(shape)};
}

Linear Reader::linear(const Matrix& matrix, int out, int in, Dtype dtype) {
  const std::string name = matrix.weight + ":" + std::to_string(matrix.first);
  if (weights_.packed) {
    const Linear::Sizes sizes = Linear::sizes(out, in, dtype);
    const std::byte* weight = section(name, sizes.weight);
    const std::byte* bias = section(name + ":bias", sizes.bias);
    const std::byte* scale = sizes.scale > 0 ? section(name + ":scale", sizes.scale) : nullptr;
    return Linear::view(weight, reinterpret_cast<const float*>(bias),
                        reinterpret_cast<const float*>(scale), out, in, dtype);
  }
  const int all = matrix.all > 0 ? matrix.all : out;
  const float* weight = array(matrix.weight, {all, in});
  const float* bias = matrix.bias.empty() ? nullptr : array(matrix.bias, {all});
  Linear linear =
      Linear::pack(weight + static_cast<std::size_t>(matrix.first) * in,
                        bias == nullptr ? nullptr : bias + matrix.first, out, in, dtype);
  const Linear::Sizes sizes = Linear::sizes(out, in, dtype);
  note(name, linear.block(0), sizes.weight);
  note(name + ":bias", linear.bias(), sizes.bias);
  if (sizes.scale > 0) note(name + ":scale", linear.scale(), sizes.scale);
  return linear;
}

Table Reader::table(const std::string& name, int count, int width, Dtype dtype) {
  const auto rows = static_cast<std::size_t>(count);
  const std::size_t bytes = Table::bytes_of(rows, width, dtype);
  if (weights_.packed) return Table::view(section(name + ":table", bytes), rows, width, dtype);
  Table table(array(name, {count, width}), rows, width, dtype);
  note(name + ":table", table.data(), bytes);
  return table;
}

void Reader::finish() const {
  for (const auto& [name, array] : weights_.arrays) {
    if (!read_.contains(name)) throw std::invalid_argument("weight " + name + " is unknown");
  }
  for (const auto& [name, section] : weights_.sections) {
    if (!read_.contains(name)) throw std::invalid_argument("section " + name + " is unknown");
  }
}

}  // namespace regard
