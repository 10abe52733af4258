// Language models and encoders for Python.
#pragma once

#include <pybind11/pybind11.h>

// Adds the classes `LanguageModel`, `Texts` and `TextEncoder`.
void bind_families(pybind11::module_& module);
