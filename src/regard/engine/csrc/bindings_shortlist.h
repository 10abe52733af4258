// The engine's shortlists in Python.
#pragma once

#include <pybind11/pybind11.h>

void bind_shortlist(pybind11::module_& module);
