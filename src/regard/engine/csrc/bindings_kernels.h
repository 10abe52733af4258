// The kernels one by one in Python, for their tests.
#pragma once

#include <pybind11/pybind11.h>

// Adds the submodule `kernels`.
void bind_kernels(pybind11::module_& module);
