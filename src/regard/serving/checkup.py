"""Whether a run folder is whole: every file, the recipe, the model, the checkpoints."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import assert_never

import torch

from regard.errors import ModelError, RegardError
from regard.serving.choosing import keeps_from
from regard.serving.encoders import engine_encoding
from regard.serving.engines import choose_engine
from regard.serving.opening import (
    Opened,
    OpenedEncoder,
    OpenedLanguageModel,
    OpenedRun,
    open_any,
)
from regard.serving.place import Place
from regard.serving.readers import language_reader
from regard.weights.checkpoints import checkpoint_steps, find_checkpoint
from regard.weights.layout import MODEL, PACKED
from regard.weights.run_folder import RunFolder


@dataclass
class Checkup:
    """What was looked at, in order, and for each what is wrong with it ("" if nothing is)."""

    path: Path
    looked: dict[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """What is wrong, a line each."""
        return [problem for problem in self.looked.values() if problem]

    def lines(self) -> list[str]:
        """All of it for a person."""
        width = max(map(len, self.looked), default=0)
        lines = [f"{name:{width}}  {problem or 'good'}" for name, problem in self.looked.items()]
        has_model = any(name in self.looked for name in (MODEL, PACKED))
        return lines if has_model else [*lines, "no model is saved yet"]

    def to_json(self) -> str:
        """All of it as JSON: for each part what is wrong, or null."""
        return json.dumps(
            {name: problem or None for name, problem in self.looked.items()}, indent=2
        )


def check_run(path: str | Path) -> Checkup:
    """Look at everything in a run folder; what is wrong with one thing hides no other.

    Raises:
        RunFolderError: it is no run folder, or its manifest, recipe or vocabulary is damaged.
    """
    folder = RunFolder.open(path, model=False)
    found = Checkup(folder.path)
    for name in folder.files:
        found.looked[name] = _problem(partial(folder.check, name))
    if folder.has_model and not found.problems:
        found.looked["model"] = _problem(partial(_use, path))
    for step in checkpoint_steps(folder.path):
        checked = _problem(partial(find_checkpoint, folder.path, step))
        found.looked[f"checkpoint {step}"] = checked
    return found


def _problem(look: Callable[[], object]) -> str:
    """What a look says is wrong, or nothing."""
    try:
        look()
    except RegardError as error:
        return str(error)
    return ""


def _use(path: str | Path) -> None:
    """Put the model together as a command that uses it would."""
    run = open_any(path, Place("cpu"))
    if run.packed is not None:
        if problem := run.packed.problem():
            raise ModelError(problem)
        _put_in_engine(run)
        return
    model: torch.nn.Module = run.model
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise ModelError(f"{name} holds a NaN or an infinity")


def _put_in_engine(run: Opened) -> None:
    match run:
        case OpenedRun():
            choose_engine([run])
        case OpenedLanguageModel():
            keeps_from([run], engine="native", dtype=None)
            language_reader(run, dtype=None, threads=1)
        case OpenedEncoder():
            keeps_from([run], engine="native", dtype=None)
            engine_encoding(run, dtype=None, threads=1)
        case _ as never:
            assert_never(never)
