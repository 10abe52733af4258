// Which instructions this processor has, and which of them to use.
#pragma once

#include <string>
#include <string_view>

namespace regard {

// In rising order of speed, for x86 and for ARM.
enum class Isa { portable, avx2, avx2_vnni, avx512, avx512_vnni, neon, neon_dot };

inline constexpr Isa kIsas[] = {Isa::portable,    Isa::avx2, Isa::avx2_vnni, Isa::avx512,
                                Isa::avx512_vnni, Isa::neon, Isa::neon_dot};

// What this processor and its operating system have, asked once.
struct Processor {
  bool avx2 = false;         // AVX2 and FMA
  bool avx2_vnni = false;    // 8-bit products summed in 32 bits
  bool avx512 = false;       // AVX-512 F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;  // bfloat16 products summed in float32
  bool neon = false;
  bool neon_dot = false;     // 8-bit products summed in 32 bits
};

const Processor& processor();

bool has(Isa isa);
Isa best_isa();
const char* name_of(Isa isa);

// Throws std::invalid_argument, naming what there is, for an unknown name or one that this
// processor lacks.
Isa isa_named(std::string_view name);

// The one in use: the best there is, unless REGARD_ISA names another.
Isa active_isa();

// Another one from now on, one that `has` says there is: for tests. Bits may differ.
void use_isa(Isa isa);

// The one in use with what it has besides, for a person to read: "avx512_vnni bf16".
std::string isa_name();

}  // namespace regard
