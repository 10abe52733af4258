// What the functions that Python calls have in common.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "isa.h"
#include "table.h"
#include "team.h"

namespace py = pybind11;

namespace regard {

using Address = std::uintptr_t;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);  // NOLINT: that is what an address is for
}

inline const Kernels& kernels() {
  switch (active_isa()) {
    case Isa::avx512:
    case Isa::avx512_vnni: return avx512_kernels();
    case Isa::avx2:
    case Isa::avx2_vnni: return avx2_kernels();
    default: return portable_kernels();
  }
}

inline Team team(Address parallel, unsigned threads) {
  return {reinterpret_cast<Parallel>(parallel), threads};
}

void bind_attention(py::module_& module);

}  // namespace regard
