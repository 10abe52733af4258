// REGARD_X86 where the x86 kernels can be compiled.
#pragma once

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define REGARD_X86 1
#endif
