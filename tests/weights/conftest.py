"""A small run to write, break and read back."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.weights.checkpoints import save_checkpoint
from regard.weights.run_folder import RunFolder

Weights = dict[str, Tensor]


def weights(value: float) -> Weights:
    shared = torch.full((2, 3), value)
    return {"embedding": shared, "projection": shared, "bias": torch.tensor([value, -value])}


def checkpoint(folder: Path, step: int) -> None:
    optimizer = {"moment": torch.full((4,), float(step)), "count": torch.tensor(step)}
    tensors = {"model": weights(float(step)), "optimizer": optimizer}
    save_checkpoint(folder, step, tensors, {"step": step, "rate": 0.1})


def write_run(path: Path, steps: tuple[int, ...] = (1, 2), model: float = 2.0) -> RunFolder:
    with RunFolder.create(path) as run:
        run.write_recipe('description = "x"\n')
        run.write_tokenizers(b'{"version": "1.0"}')
        for step in steps:
            checkpoint(path, step)
        run.write_model(weights(model), {"made": "last", "step": "2"})
    return run


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here pulls the plug, and only a pulled plug tells a synced file from another."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def make_weights() -> Callable[[float], Weights]:
    return weights


@pytest.fixture
def make_checkpoint() -> Callable[[Path, int], None]:
    return checkpoint


@pytest.fixture
def make_run() -> Callable[..., RunFolder]:
    return write_run


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """A run with a model of 2.0 and checkpoints of steps 1 and 2, closed."""
    path = tmp_path / "runs" / "ende"
    write_run(path)
    return path
