#pragma once

#include <pybind11/pybind11.h>

// Adds what packs a model to be written to a file.
void bind_packed(pybind11::module_& module);
