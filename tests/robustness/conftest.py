"""The tiny training of benchmarks/kills.py, started in forked processes."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.fixture(scope="session")
def kills() -> ModuleType:
    """The benchmark, as a module."""
    spec = importlib.util.spec_from_file_location("kills", KILLS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kills"] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def whole(kills: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> object:
    """Work whose run `whole` was trained to its end, undisturbed."""
    work = kills.Work(tmp_path_factory.mktemp("work"))
    code = work.end(work.start("whole"))
    assert code == 0, work.said
    return work


@pytest.fixture
def train(kills: ModuleType) -> Callable[..., int]:
    """Starts a run of some work and waits for its end; returns its exit code."""

    def start(work: object, run: str, disk: object = None) -> int:
        return work.end(work.start(run, disk))  # type: ignore[attr-defined, no-any-return]

    return start
