#include "bindings_kernels.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "disorder.h"
#include "kernels.h"
#include "scheduler.h"
#include "select.h"
#include "threads.h"

namespace py = pybind11;

namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Index = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>;

void need(bool is_so, const char* what) {
  if (!is_so) throw std::invalid_argument(what);
}

regard::Dtype dtype_named(const std::string& name) {
  if (name == "float32") return regard::Dtype::f32;
  if (name == "bfloat16") return regard::Dtype::bf16;
  if (name == "int4") return regard::Dtype::i4;
  need(name == "int8", "a dtype is float32, bfloat16, int8 or int4");
  return regard::Dtype::i8;
}

regard::Activation activation_named(const std::string& name) {
  if (name == "relu") return regard::Activation::relu;
  if (name == "gelu") return regard::Activation::gelu;
  if (name == "gelu_tanh") return regard::Activation::gelu_tanh;
  need(name == "swish", "an activation is relu, gelu, gelu_tanh or swish");
  return regard::Activation::swish;
}

regard::Sharing sharing_named(const std::string& name) {
  if (name == "layers") return regard::Sharing::layers;
  if (name == "sentences") return regard::Sharing::sentences;
  need(name == "quicker", "threads share layers, sentences or what is quicker");
  return regard::Sharing::quicker;
}

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const auto isa : regard::kIsas) {
    if (regard::has(isa)) names.emplace_back(regard::name_of(isa));
  }
  return names;
}

int length(const Floats& row) {
  need(row.ndim() == 1 && row.shape(0) > 0, "a row has one axis and at least one value");
  return static_cast<int>(row.shape(0));
}

Floats copied(const Floats& row) {
  Floats copy(row.shape(0));
  std::memcpy(copy.mutable_data(), row.data(), static_cast<std::size_t>(row.nbytes()));
  return copy;
}

const float* data_or_null(const std::optional<Floats>& row, int n) {
  if (!row) return nullptr;
  need(length(*row) == n, "rows of one length");
  return row->data();
}

regard::Linear pack(const Floats& weight, const std::optional<Floats>& bias,
                    const std::string& dtype) {
  need(weight.ndim() == 2, "a weight has two axes");
  const int out = static_cast<int>(weight.shape(0)), in = static_cast<int>(weight.shape(1));
  return regard::Linear::pack(weight.data(), data_or_null(bias, out), out, in, dtype_named(dtype));
}

Floats apply(const regard::Linear& linear, const Floats& x, int begin, std::optional<int> to) {
  need(x.ndim() == 2 && x.shape(1) == linear.in(), "inputs are rows of the layer's width");
  const int end = to.value_or(linear.out());
  need(begin >= 0 && begin % regard::kColumns == 0 && begin < end && end <= linear.out() &&
           (end % regard::kColumns == 0 || end == linear.out()),
       "columns are whole blocks");
  regard::Input input;
  input.set(linear.dtype(), x.data(), static_cast<std::size_t>(x.shape(0)), linear.in(),
            static_cast<std::size_t>(linear.in()));
  Floats y({x.shape(0), static_cast<py::ssize_t>(end - begin)});
  regard::apply(linear, input, y.mutable_data(), static_cast<std::size_t>(end - begin), begin, end);
  return y;
}

// For measuring: the same rows again and again, without Python between.
void repeat(const regard::Linear& linear, const Floats& x, Floats y, int times) {
  need(x.ndim() == 2 && x.shape(1) == linear.in() && y.ndim() == 2 && y.shape(1) == linear.out() &&
           y.shape(0) == x.shape(0),
       "inputs and outputs are rows of the layer's widths");
  const auto rows = static_cast<std::size_t>(x.shape(0));
  regard::Input input;
  for (int time = 0; time < times; ++time) {
    input.set(linear.dtype(), x.data(), rows, linear.in(), static_cast<std::size_t>(linear.in()));
    regard::apply(linear, input, y.mutable_data(), static_cast<std::size_t>(linear.out()));
  }
}

Floats unpack(const regard::Linear& linear) {
  Floats weight({linear.out(), linear.in()});
  for (int o = 0; o < linear.out(); ++o) linear.unpack(o, weight.mutable_data(o));
  return weight;
}

// The packed bytes of each row and its scale, which means something for int8 only.
py::tuple prepared(const Floats& x, const std::string& dtype) {
  need(x.ndim() == 2 && x.shape(1) > 0, "inputs have two axes");
  const auto rows = static_cast<std::size_t>(x.shape(0));
  regard::Input input;
  input.set(dtype_named(dtype), x.data(), rows, static_cast<int>(x.shape(1)),
            static_cast<std::size_t>(x.shape(1)));
  need(input.dtype() != regard::Dtype::f32, "float32 is not prepared");
  py::array_t<std::uint8_t> packed(
      {x.shape(0), static_cast<py::ssize_t>(input.packed_stride())});
  std::memcpy(packed.mutable_data(), input.packed(), rows * input.packed_stride());
  Floats scale(x.shape(0));
  std::memcpy(scale.mutable_data(), input.scale(), rows * sizeof(float));
  return py::make_tuple(packed, scale);
}

// Rows as attention keeps them.
struct KeptRows {
  KeptRows(const Floats& rows, regard::Dtype kept)
      : stride(regard::kept_bytes(kept, static_cast<int>(rows.shape(1)))),
        bytes(static_cast<std::size_t>(rows.shape(0)) * stride),
        scale(static_cast<std::size_t>(rows.shape(0))) {
    for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
      const auto at = static_cast<std::size_t>(row);
      regard::keep(kept, rows.data(row), static_cast<int>(rows.shape(1)),
                   bytes.data() + at * stride, scale.data() + at);
    }
  }
  regard::RowsAt at(const std::int32_t* index) const {
    return {bytes.data(), stride, scale.data(), index};
  }

  std::size_t stride;
  std::vector<std::byte> bytes;
  std::vector<float> scale;
};

Floats attend(const Floats& query, const Floats& keys, const Floats& values, float scale,
              const std::optional<Index>& index, const std::optional<Floats>& bias,
              const std::string& dtype) {
  need(keys.ndim() == 2 && values.ndim() == 2 && keys.shape(0) == values.shape(0) &&
           keys.shape(0) > 0 && keys.shape(1) == length(query),
       "keys and values are rows, as many of each");
  const auto count = static_cast<int>(index ? index->shape(0) : keys.shape(0));
  need(count > 0, "there is something to look at");
  for (int j = 0; index && j < count; ++j) {
    need(index->data()[j] >= 0 && index->data()[j] < keys.shape(0), "an index names a row");
  }
  const auto kept = dtype_named(dtype);
  need(kept != regard::Dtype::i4, "float32, bfloat16 and int8 are kept");
  const auto key_dim = static_cast<int>(keys.shape(1));
  const auto value_dim = static_cast<int>(values.shape(1));
  const KeptRows near_keys(keys, kept), near_values(values, kept);
  const std::int32_t* named = index ? index->data() : nullptr;
  const regard::Attended at{kept,
                            near_keys.at(named),
                            near_values.at(named),
                            count,
                            key_dim,
                            value_dim,
                            scale};
  Floats out(values.shape(1));
  std::vector<float> work(regard::attend_room(count, key_dim));
  regard::attend(at, query.data(), data_or_null(bias, count), work.data(), out.mutable_data());
  return out;
}

Floats layer_norm(const Floats& x, const std::optional<Floats>& weight,
                  const std::optional<Floats>& bias, float epsilon) {
  const int n = length(x);
  Floats y(n);
  regard::layer_norm(x.data(), data_or_null(weight, n), data_or_null(bias, n), epsilon,
                     y.mutable_data(), n);
  return y;
}

Floats rms_norm(const Floats& x, const std::optional<Floats>& weight, float epsilon) {
  const int n = length(x);
  Floats y(n);
  regard::rms_norm(x.data(), data_or_null(weight, n), epsilon, y.mutable_data(), n);
  return y;
}

Floats activate(const std::string& name, const Floats& x, const std::optional<Floats>& value) {
  const int n = length(x);
  Floats y = copied(x);
  if (value) {
    regard::activate_gate(activation_named(name), y.mutable_data(), data_or_null(value, n), n);
  } else {
    regard::activate(activation_named(name), y.mutable_data(), n);
  }
  return y;
}

py::list best(const Floats& row, int k, int piece) {
  const int n = length(row);
  regard::Best chosen(k);
  for (int at = 0; at < n; at += piece) {
    chosen.offer(row.data() + at, std::min(piece, n - at), at);
  }
  py::list found;
  for (int rank = 0; rank < chosen.size(); ++rank) {
    found.append(py::make_tuple(chosen.value(rank), chosen.column(rank)));
  }
  return found;
}

double log_sum_exp(const Floats& row, int piece) {
  const int n = length(row);
  regard::LogSumExp sum;
  for (int at = 0; at < n; at += piece) sum.add(row.data() + at, std::min(piece, n - at));
  return sum.value();
}

// A function that changes a row in place, as one that gives a new row.
template <class Function>
auto on_a_copy(Function function) {
  return [function](const Floats& row) {
    const int n = length(row);
    Floats y = copied(row);
    function(y.mutable_data(), n);
    return y;
  };
}

}  // namespace

void bind_kernels(py::module_& module) {
  auto kernels = module.def_submodule("kernels", "The kernels one by one, for their tests.");
  kernels.attr("columns") = regard::kColumns;
  kernels.def("isas", &isas, "The instruction sets of this processor, in rising order.");
  kernels.def("active", [] { return std::string(regard::name_of(regard::active_isa())); });
  kernels.def("use", [](const std::string& name) { regard::use_isa(regard::isa_named(name)); });
  kernels.def(
      "share", [](const std::string& name) { regard::use_sharing(sharing_named(name)); },
      "For tests: what threads share from now on, whatever is quicker.");
  kernels.def("disorder", &regard::set_disorder,
              "For a control: whether sums depend on the number of rows from now on.");
#ifdef __SANITIZE_ADDRESS__
  kernels.def("read_past", [](const Floats& row) { return regard::max(row.data(), length(row) + 1); },
              "For a control: a wrong address, which must be noticed.");
#endif
#ifdef __SANITIZE_THREAD__
  kernels.def("loosen", &regard::loosen,
              "For a control: whether threads meet without an order from now on, a race.");
#endif
  py::class_<regard::Linear>(kernels, "Linear")
      .def(py::init(&pack), py::arg("weight"), py::arg("bias"), py::arg("dtype"))
      .def_property_readonly("bytes", &regard::Linear::bytes)
      .def("unpack", &unpack)
      .def("apply", &apply, py::arg("x"), py::arg("begin") = 0, py::arg("end") = py::none())
      .def("repeat", &repeat, py::arg("x"), py::arg("y").noconvert(), py::arg("times"));
  kernels.def("prepared", &prepared, py::arg("x"), py::arg("dtype"));
  kernels.def("attend", &attend, py::arg("query"), py::arg("keys"), py::arg("values"),
              py::arg("scale"), py::arg("index") = py::none(), py::arg("bias") = py::none(),
              py::arg("dtype") = "float32");
  kernels.def("layer_norm", &layer_norm, py::arg("x"), py::arg("weight"), py::arg("bias"),
              py::arg("epsilon"));
  kernels.def("rms_norm", &rms_norm, py::arg("x"), py::arg("weight"), py::arg("epsilon"));
  kernels.def("activate", &activate, py::arg("name"), py::arg("x"), py::arg("value") = py::none());
  kernels.def("best", &best, py::arg("row"), py::arg("k"), py::arg("piece"));
  kernels.def("log_sum_exp", &log_sum_exp, py::arg("row"), py::arg("piece"));
  kernels.def("exp", on_a_copy([](float* row, int n) { regard::exp(row, n); }));
  kernels.def("softmax", on_a_copy([](float* row, int n) { regard::softmax(row, n); }));
  kernels.def("dot", [](const Floats& a, const Floats& b) {
    const int n = length(a);
    return regard::dot(a.data(), data_or_null(b, n), n);
  });
  kernels.def("axpy", [](float a, const Floats& x, const Floats& y) {
    Floats sum = copied(y);
    regard::axpy(a, data_or_null(x, length(y)), sum.mutable_data(), length(y));
    return sum;
  });
  kernels.def("add", [](const Floats& x, const Floats& y) {
    Floats sum = copied(y);
    regard::add(data_or_null(x, length(y)), sum.mutable_data(), length(y));
    return sum;
  });
  kernels.def("multiply", [](const Floats& x, const Floats& y) {
    Floats product = copied(y);
    regard::multiply(data_or_null(x, length(y)), product.mutable_data(), length(y));
    return product;
  });
  kernels.def("scale", [](float a, const Floats& y) {
    Floats product = copied(y);
    regard::scale(a, product.mutable_data(), length(y));
    return product;
  });
  kernels.def("max", [](const Floats& row) { return regard::max(row.data(), length(row)); });
  kernels.def("first_above", [](const Floats& row, float floor) {
    return regard::first_above(row.data(), length(row), floor);
  });
}
