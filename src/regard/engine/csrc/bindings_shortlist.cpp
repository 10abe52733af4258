#include "bindings_shortlist.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "shortlist.h"

namespace py = pybind11;

namespace {

template <class T>
using Given = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <class T>
std::vector<T> list_of(const Given<T>& array) {
  if (array.ndim() != 1) throw std::invalid_argument("a shortlist's arrays have one axis");
  return {array.data(), array.data() + array.size()};
}

regard::Shortlist make(const Given<std::int64_t>& offsets, const Given<std::int32_t>& tokens,
                       const Given<std::int32_t>& always, int targets) {
  return {list_of(offsets), list_of(tokens), list_of(always), targets};
}

void check(const regard::Ids& ids, int size) {
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size) throw std::invalid_argument(std::to_string(id) + " is no id here");
  }
}

regard::Ids allowed(const regard::Shortlist& self, const regard::Ids& source,
                    const regard::Ids& prefix) {
  check(source, self.sources());
  check(prefix, self.targets());
  return self.allowed(source, &prefix);
}

}  // namespace

void bind_shortlist(py::module_& module) {
  py::class_<regard::Shortlist>(module, "Shortlist")
      .def(py::init(&make), py::kw_only(), py::arg("offsets"), py::arg("tokens"),
           py::arg("always"), py::arg("targets"))
      .def("allowed", &allowed, py::arg("source"), py::arg("prefix"));
}
