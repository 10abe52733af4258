// What Python says of a model, in the engine's own words.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "config.h"
#include "engine.h"

using FloatArray = pybind11::array_t<float, pybind11::array::c_style>;

// Throws std::invalid_argument for a word that is not known, and KeyError where one is missing.
regard::ModelConfig config_of(const pybind11::dict& settings);

regard::Dtype dtype_of(const std::string& name);

// From float32 arrays, or from packed sections, which are bytes. The arrays must outlive it. Throws
// std::invalid_argument for any other.
regard::Weights weights_of(const pybind11::dict& arrays);
