"""The parts of a run, put together and not yet started: what the families have in common."""

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import nn

from regard.recipes.adapting import model_notes
from regard.recipes.recipe import AnyRecipe
from regard.text.corpus import Tokenizers
from regard.training.feed import BatchSource
from regard.training.interrupts import Interrupts
from regard.training.loop import Trainer
from regard.training.parts import AnyBatch
from regard.training.processes import ALONE, Processes
from regard.training.progress import Reporter
from regard.training.step import Loss
from regard.training.validation import Validator
from regard.weights.run_folder import RunFolder


@runtime_checkable
class Batches(BatchSource, Protocol):
    """Batches of which the one that takes the most memory is known."""

    def largest(self) -> AnyBatch:
        """A batch that takes as much memory as any, or nearly."""


@dataclass(frozen=True)
class Assembly(ABC):
    """The parts of a run; a family says what its text, its loss and its validation are."""

    recipe: AnyRecipe
    model: nn.Module
    vocabularies: Tokenizers

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """What training minimises."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Names the training data; its first word is what the prepared text is known by."""

    @property
    @abstractmethod
    def measured(self) -> Any:  # noqa: ANN401 - any JSON value
        """What validations measure with: figures of another text or search can't be compared."""

    @abstractmethod
    def batches(self) -> Batches:
        """The batches of the training text, in their order."""

    @abstractmethod
    def validator(self) -> Validator:
        """What measures the model on the validation text."""

    @abstractmethod
    def line(self, row: int) -> tuple[str, int]:
        """The file and the line number of a row of the data."""

    @abstractmethod
    def try_out(self) -> str:
        """Use the model once, as it will be used, and say in two words what for."""

    @property
    def untrained_remark(self) -> str:
        """How much longer a validation takes while the model is untrained; empty if no longer."""
        return ""

    def trainer(
        self,
        folder: RunFolder,
        batches: BatchSource,
        *,
        reporter: Reporter,
        interrupts: Interrupts,
        validator: Validator | None,
        processes: Processes = ALONE,
    ) -> Trainer:
        """What trains the model on the batches into a run folder that is open for writing."""
        return Trainer(
            self.model,
            batches,
            self.recipe.training,
            folder,
            validate=None if validator is None else validator.run,
            reporter=reporter,
            interrupts=interrupts,
            line=self.line,
            fingerprint=self.fingerprint,
            measure=hashlib.sha256(json.dumps(self.measured).encode()).hexdigest(),
            loss=self.loss,
            notes=model_notes(self.recipe, self.model, folder),
            unit=self.recipe.unit.removeprefix("target "),
            processes=processes,
        )
