"""What this machine is: processor, cores, memory."""

import os
import platform
import sys
from pathlib import Path
from typing import Final

# What the drivers of NVIDIA and AMD, and Windows around a Linux, show to programs.
_GPU_SIGNS: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/proc/driver/nvidia/version")


def cpu_model() -> str:
    """The processor's name."""
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def container_cores() -> float | None:
    """The cores that a container's quota amounts to; None without one."""
    for line in _lines("/sys/fs/cgroup/cpu.max"):
        quota, period = line.split()
        return None if quota == "max" else int(quota) / int(period)
    return None


def memory() -> dict[str, float]:
    """Memory in GiB: in all, available, and the container's limit where it has one."""
    wanted = {"MemTotal": "in all", "MemAvailable": "available"}
    found = {}
    for line in _lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name in wanted:
            found[wanted[name]] = int(value.split()[0]) / 2**20
    for line in _lines("/sys/fs/cgroup/memory.max"):
        if line.strip() != "max":
            found["allowed by the container"] = int(line) / 2**30
    return found


def most_memory() -> int | None:
    """The bytes that processes may have here at most, on disk too (swap); None if unknown."""
    sizes = {}
    for line in _lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name in {"MemTotal", "SwapTotal"}:
            sizes[name] = int(value.split()[0]) * 1024
    if "MemTotal" not in sizes:
        return None
    swap = sizes.get("SwapTotal", 0)
    limits = [int(line) for line in _lines("/sys/fs/cgroup/memory.max") if line.strip() != "max"]
    return min([sizes["MemTotal"], *limits]) + swap


def may_have_gpu() -> bool:
    """Whether a GPU may be here that PyTorch can use: False is certain, True is not."""
    return not sys.platform.startswith("linux") or any(map(os.path.exists, _GPU_SIGNS))


def _lines(path: str) -> list[str]:
    """The lines of a file of the system; none where there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
