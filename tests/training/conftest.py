"""A trainer of the tiny task, to be stopped, cut and resumed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from training.digits import DigitBatches, settings, tiny_model

from regard.shapes import Tensor
from regard.training.loop import Trainer
from regard.training.result import TrainingResult
from regard.weights.lock import WriterLock
from regard.weights.manifest import read_manifest
from regard.weights.run_folder import RunFolder


@dataclass
class Trained:
    trainer: Trainer
    result: TrainingResult
    path: Path

    @property
    def weights(self) -> dict[str, Tensor]:
        return self.trainer.model.state_dict()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """These runs survive no power cut, and end sooner."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Trained]:
    """Trains in a folder of that name; with `resume`, goes on in it with a fresh model."""

    def run(
        name: str,
        *,
        resume: bool = False,
        dropout: float = 0.0,
        batches: object = None,
        model: torch.nn.Module | None = None,
        options: dict[str, object] | None = None,
        **changes: object,
    ) -> Trained:
        path = tmp_path / name
        if resume:
            # These runs have no recipe and no vocabulary, which RunFolder.open asks for.
            opened = RunFolder(path, read_manifest(path), WriterLock(path))
        else:
            opened = RunFolder.create(path)
        with opened as folder:
            trainer = Trainer(
                model or tiny_model(dropout),
                batches or DigitBatches(),
                settings(**changes),
                folder,
                **(options or {}),
            )
            return Trained(trainer, trainer.run(resume=resume), path)

    return run
