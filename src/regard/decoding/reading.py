"""Who reads texts for a generation and says what may follow: PyTorch, or the engine."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import torch

from regard.decoding.padding import padded
from regard.decoding.step import evaluating
from regard.models.decoder import LanguageModel
from regard.nn.cache import Cache
from regard.shapes import Float, Int, Tensor

# A long prompt is read in parts: scores of all its places by all would not fit.
_PART = 512


@runtime_checkable
class Reading(Protocol):
    """Texts that have been read, a row each."""

    def advance(self, tokens_r: Int[Tensor, " r"]) -> Float[Tensor, "r v"]:
        """Append one token to every row; give the logits of what follows."""
        ...

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        """Go on with these of the present rows, in this order; a row may come often or never."""
        ...


@runtime_checkable
class Reader(Protocol):
    """A language model as a generation needs it."""

    @property
    def vocabulary(self) -> int:
        """How many ids it tells apart."""
        ...

    @property
    def longest(self) -> int | None:
        """The most tokens of a text; None where there is no end."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its logits are."""
        ...

    def ready(self) -> AbstractContextManager[None]:
        """For as long as it reads."""
        ...

    def read(self, texts: Sequence[Sequence[int]]) -> tuple[Reading, Float[Tensor, "b v"]]:
        """Read texts, none of them empty; give them, and the logits of what follows each."""
        ...


def reader_of(model: "LanguageModel | Reader") -> Reader:
    """Who reads with a model: PyTorch, if it is a plain one."""
    return ModelReader(model) if isinstance(model, LanguageModel) else model


class ModelReader:
    """PyTorch reads, all texts of a batch side by side."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.vocabulary = model.vocabulary
        self.longest = model.config.longest

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self._model.output_weight.device

    def ready(self) -> AbstractContextManager[None]:
        """Without dropout."""
        return evaluating(self._model)

    def read(self, texts: Sequence[Sequence[int]]) -> tuple[Reading, Float[Tensor, "b v"]]:
        """Read texts, in parts where they are long."""
        model = self._model
        # Padded on the left, all texts end at one place.
        ids_bt, mask_bt = padded(texts, fill=0, device=self.device, left=True)
        cache = model.start(len(ids_bt))
        ragged = not bool(mask_bt.all())
        for start in range(0, ids_bt.shape[1], _PART):
            part = slice(start, start + _PART)
            hidden_btd = model.step(ids_bt[:, part], cache, mask_bt[:, part] if ragged else None)
        return _ModelReading(model, cache), model.project(hidden_btd[:, -1])


class _ModelReading:
    def __init__(self, model: LanguageModel, cache: Cache) -> None:
        self._model = model
        self._cache = cache

    def advance(self, tokens_r: Int[Tensor, " r"]) -> Float[Tensor, "r v"]:
        hidden_r1d = self._model.step(tokens_r[:, None], self._cache)
        return self._model.project(hidden_r1d[:, -1])

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        self._cache.select(rows_r)
