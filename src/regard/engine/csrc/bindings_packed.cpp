#include "bindings_packed.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "bindings_config.h"
#include "model.h"

namespace py = pybind11;

namespace {

// A model and where in memory its packed parts are.
struct Packed {
  std::unique_ptr<regard::Model> model;
  std::map<std::string, regard::Section> sections;
};

std::unique_ptr<Packed> pack(const py::dict& settings, const py::dict& arrays,
                             const std::string& dtype) {
  auto packed = std::make_unique<Packed>();
  regard::Weights weights = weights_of(arrays);
  weights.made = &packed->sections;
  const auto config = config_of(settings);
  py::gil_scoped_release others_may_run;
  packed->model = std::make_unique<regard::Model>(config, weights, dtype_of(dtype));
  return packed;
}

// The bytes of each part, where they are, by its name.
py::dict sections(const py::object& self) {
  py::dict found;
  for (const auto& [name, section] : self.cast<const Packed&>().sections) {
    found[py::str(name)] = py::array_t<std::uint8_t>(
        section.bytes, reinterpret_cast<const std::uint8_t*>(section.data), self);
  }
  return found;
}

}  // namespace

void bind_packed(py::module_& module) {
  py::class_<Packed>(module, "Packed")
      .def(py::init(&pack), py::kw_only(), py::arg("config"), py::arg("weights"),
           py::arg("dtype"), py::keep_alive<1, 3>())
      .def("sections", &sections);
}
