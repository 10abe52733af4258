"""Keeps glibc from handing memory back to the system and faulting it in again at every step."""

import ctypes
import platform
import sys

# From glibc's malloc.h: the parameters of mallopt.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4

_NEVER = -1
_TOP_PAD_BYTES = 64 * 2**20


def hold_memory() -> bool:
    """Let malloc keep what is freed, for the life of the process; say whether it was done.

    A training step on a CPU allocates and frees the same large tensors again and again. By
    default glibc maps each from the system and unmaps it after, and the page faults cost a
    quarter to a third of the time of a step. With these settings they come from the heap and
    stay there. The price is that the process's resident size stays at its peak.

    Does nothing anywhere but on Linux with glibc.
    """
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    # No block is mapped by itself (M_MMAP_THRESHOLD can't say so: glibc refuses over 32 MiB),
    # the heap is never trimmed, and it grows in large pieces.
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_TOP_PAD, _TOP_PAD_BYTES))
    done = [mallopt(parameter, value) for parameter, value in settings]
    return all(done)
