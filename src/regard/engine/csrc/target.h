// REGARD_X86 where the x86 kernels can be compiled. Included before the intrinsics.
#pragma once

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define REGARD_X86 1
#ifndef __clang__
// GCC 12 finds these in its own header: registers that are meant to hold anything.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif
