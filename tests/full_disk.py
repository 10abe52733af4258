"""A disk that is full where a test says so: /dev/full in the place of a file."""

from pathlib import Path
from typing import Any

import pytest

FULL = Path("/dev/full")


def fill(patched: pytest.MonkeyPatch, ending: str) -> None:
    """From now on what is written to files whose names end so finds no space."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        full = path.name.endswith(ending) and "r" not in mode
        return real(FULL if full else path, mode, *rest, **options)

    patched.setattr(Path, "open", opened)
