// REGARD_X86 and REGARD_ARM where those kernels can be compiled. Included before the intrinsics.
#pragma once

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
#define REGARD_ARM 1
#endif

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define REGARD_X86 1
#ifndef __clang__
// GCC 12 finds these in its own header: registers that are meant to hold anything.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif
