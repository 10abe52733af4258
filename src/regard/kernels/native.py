"""The extension with the native kernels, where it was built; and where it was not, why."""

import ctypes
import os
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

from regard.errors import RegardError
from regard.kernels.switch import plain_on_cpu, switched_on
from regard.shapes import Tensor

# Another number for each change of what the extension's functions take. One that was built in a
# source tree stays there when the sources go on.
INTERFACE: Final = 2
_ABSENT = Path(__file__).with_name("absent.txt")  # what setup.py writes instead of the extension


@cache
def _load() -> ModuleType | str:
    """The extension, or why there is none."""
    try:
        module = import_module("regard.kernels._native")
        module.isa()
    except ValueError as error:  # REGARD_ISA asks for what is not there
        return str(error)
    except ImportError as error:
        if any(_ABSENT.parent.glob("_native.*")) and not isinstance(error, ModuleNotFoundError):
            return f"they can't be loaded: {error}"
    else:
        return _unfitness(module) or module
    try:
        return f"they could not be built: {_ABSENT.read_text(encoding='utf-8').strip()}"
    except OSError:
        return "they were not built"


def _unfitness(module: ModuleType) -> str:
    """Why the extension is not for this version or this processor; an empty string if it is."""
    if getattr(module, "INTERFACE", 1) != INTERFACE:
        return "they were built from other sources; build the package anew"
    if "avx2" not in module.isas():  # plain C++ was measured slower than PyTorch
        return "they are for x86 processors with AVX2 or AVX-512"
    return ""


def absence() -> str:
    """Why there are no native kernels here; an empty string if there are."""
    found = _load()
    return found if isinstance(found, str) else ""


def summary() -> str:
    """What instructions they run on, or why PyTorch does their work, for a person to read."""
    if not switched_on():
        return "off by REGARD_KERNELS"
    return f"none: {absence()}" if absence() else str(module().isa())


def refuse_second_gradients(what: str, instead: str = "Set REGARD_KERNELS=off.") -> None:
    """To be called in a backward pass that can't be passed back through.

    torch's `once_differentiable` refuses `backward` alone: `torch.autograd.grad` takes what it
    marks for independent of the input, and would leave out a part of a second gradient.

    Raises:
        RegardError: the pass is recorded, as by `create_graph=True`.
    """
    if torch.is_grad_enabled():
        raise RegardError(f"no gradients of gradients are taken through {what}", hint=instead)


def wanted_for(*tensors: Tensor | None) -> bool:
    """Whether the native kernels are there, switched on, and for tensors such as these."""
    return plain_on_cpu(*tensors) and not absence() and switched_on()


def module() -> Any:  # noqa: ANN401 - an extension
    """The extension itself, where `absence` says nothing."""
    return _load()


def team() -> tuple[int, int]:
    """What a kernel is told of threads: where PyTorch's own start, and how many it may use."""
    return _start_of_threads(), torch.get_num_threads()


@cache
def _start_of_threads() -> int:
    """The address of GOMP_parallel in the OpenMP that PyTorch brought along; 0 without one.

    A second library, even of the same kind, would have threads of its own beside PyTorch's.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return 0
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return 0
