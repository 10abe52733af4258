"""The engine's extension, where it was built; and where it was not, why."""

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.errors import RegardError

_ABSENT = Path(__file__).with_name("absent.txt")  # what setup.py writes instead of the extension


class EngineError(RegardError):
    """The engine is not there, or can't do what is asked of it; PyTorch can."""


@cache
def _load() -> ModuleType | str:
    """The extension, or why there is none."""
    try:
        return import_module("regard.engine._native")
    except ImportError as error:
        if any(_ABSENT.parent.glob("_native.*")) and not isinstance(error, ModuleNotFoundError):
            return f"it can't be loaded: {error}"
    try:
        return f"it could not be built: {_ABSENT.read_text(encoding='utf-8').strip()}"
    except OSError:
        return "it was not built"


def absence() -> str:
    """Why there is no engine here; an empty string if there is one."""
    found = _load()
    return found if isinstance(found, str) else ""


def available() -> bool:
    """Whether there is an engine."""
    return not absence()


def module() -> Any:  # noqa: ANN401 - its types are in _native.pyi
    """The extension itself.

    Raises:
        EngineError: there is none; says why.
    """
    found = _load()
    if isinstance(found, str):
        raise EngineError(f"there is no engine: {found}")
    return found


def isa() -> str:
    """The instructions that the engine runs on: "avx512", "avx2", "portable", ...

    Raises:
        EngineError: there is no engine, or REGARD_ISA asks for some that are not there.
    """
    try:
        return str(module().isa())
    except ValueError as error:
        raise EngineError(
            str(error).removeprefix("REGARD_ISA: "),
            where="REGARD_ISA",
            hint="Unset it, and the best of these is taken; or set it to one of them.",
        ) from None
