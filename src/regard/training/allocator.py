"""Memory on a CPU: what is freed is kept for the next step, and few compiled kernels are."""

import ctypes
import os
import platform
import sys

from regard.environment import MALLOC, switched_on

# From glibc's malloc.h: the parameters of mallopt.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4

_NEVER = -1
_TOP_PAD_BYTES = 64 * 2**20
# Kernels that oneDNN keeps, one for each shape of each product; it reads this at its first use.
_KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def hold_memory() -> bool:
    """Let malloc keep what is freed, for the life of the process; say whether it was done.

    A training step on a CPU allocates and frees the same large tensors again and again. By
    default glibc maps each from the system and unmaps it after, and faults the pages in anew.
    With these settings they come from the heap and stay there. The price is that the process's
    resident size stays at its peak.

    Batches come in many shapes, and oneDNN compiles kernels for each and keeps 1,024 of them,
    about 1 GiB. It is told to keep 128, unless the environment says otherwise; recipe `small`
    then took 2.2 instead of 2.9 GB after 120 steps, and was no slower.

    Malloc is left alone anywhere but on Linux with glibc, and where REGARD_MALLOC is `off`.

    Raises:
        RegardError: REGARD_MALLOC is neither `on` nor `off`.
    """
    os.environ.setdefault(*_KERNELS)
    if not switched_on(MALLOC):
        return False
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
