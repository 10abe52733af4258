#include "isa.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "target.h"

#ifdef REGARD_X86
#include <cpuid.h>
#endif
#if defined(REGARD_ARM) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace regard {

#ifdef REGARD_X86
namespace {

// Which __builtin_cpu_supports of older compilers has no name for.
bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & (1u << 4)) != 0;
}

}  // namespace
#endif

#ifdef REGARD_ARM
namespace {

bool has_dot_products() {
#if defined(__ARM_FEATURE_DOTPROD)  // what is compiled for has it, as all Macs have
  return true;
#elif defined(__linux__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP, new in 2017
  return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#else
  return false;
#endif
}

}  // namespace
#endif

const Processor& processor() {
  static const Processor found = [] {
    Processor has;
#ifdef REGARD_X86
    // These also ask the operating system whether it keeps the registers.
    __builtin_cpu_init();
    has.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    has.avx2_vnni = has.avx2 && has_avx_vnni();
    has.avx512 = has.avx2 && __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
    has.avx512_vnni = has.avx512 && __builtin_cpu_supports("avx512vnni");
    has.avx512_bf16 = has.avx512 && __builtin_cpu_supports("avx512bf16");
#endif
#ifdef REGARD_ARM
    has.neon = true;
    has.neon_dot = has_dot_products();
#endif
    return has;
  }();
  return found;
}

bool has(Isa isa) {
  switch (isa) {
    case Isa::portable: return true;
    case Isa::avx2: return processor().avx2;
    case Isa::avx2_vnni: return processor().avx2_vnni;
    case Isa::avx512: return processor().avx512;
    case Isa::avx512_vnni: return processor().avx512_vnni;
    case Isa::neon: return processor().neon;
    case Isa::neon_dot: return processor().neon_dot;
  }
  return false;
}

Isa best_isa() {
  Isa best = Isa::portable;
  for (const Isa isa : kIsas) {
    if (has(isa)) best = isa;
  }
  return best;
}

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::portable: return "portable";
    case Isa::avx2: return "avx2";
    case Isa::avx2_vnni: return "avx2_vnni";
    case Isa::avx512: return "avx512";
    case Isa::avx512_vnni: return "avx512_vnni";
    case Isa::neon: return "neon";
    case Isa::neon_dot: return "neon_dot";
  }
  return "";
}

Isa isa_named(std::string_view name) {
  std::string there;
  for (const Isa isa : kIsas) {
    if (!has(isa)) continue;
    if (name == name_of(isa)) return isa;
    there += (there.empty() ? "" : ", ") + std::string(name_of(isa));
  }
  throw std::invalid_argument("REGARD_ISA: this processor has " + there + ", not \"" +
                              std::string(name) + "\"");
}

namespace {

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa = [] {
    const char* wanted = std::getenv("REGARD_ISA");
    return wanted && *wanted ? isa_named(wanted) : best_isa();
  }();
  return isa;
}

}  // namespace

Isa active_isa() { return chosen().load(std::memory_order_relaxed); }

void use_isa(Isa isa) { chosen().store(isa, std::memory_order_relaxed); }

std::string isa_name() {
  std::string name = name_of(active_isa());
  if (active_isa() == Isa::avx512_vnni && processor().avx512_bf16) name += " bf16";
  return name;
}

}  // namespace regard
