"""Who goes on with texts: the engine, or PyTorch where the engine can't."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from regard.decoding.reading import Reading
from regard.engine.engine import Dtype
from regard.engine.language_model import LanguageModelEngine, Texts
from regard.serving.choosing import in_engine
from regard.serving.opening import OpenedLanguageModel
from regard.shapes import Float, Int, Tensor


def language_reader(
    run: OpenedLanguageModel, *, dtype: str | None, threads: int | None
) -> "EngineReader":
    """The engine with a model that nothing keeps it from.

    Raises:
        As `regard.serving.choosing.in_engine`.
    """

    def make(weights: Mapping[str, Any], held: Dtype) -> LanguageModelEngine:
        return LanguageModelEngine(
            run.recipe.model,
            weights,
            vocabulary=run.vocabulary.size,
            dtype=held,
            threads=threads,
        )

    return EngineReader(in_engine(run, dtype, make))


class EngineReader:
    """The engine as a `regard.decoding.reading.Reader`: texts of any lengths, without padding."""

    def __init__(self, engine: LanguageModelEngine) -> None:
        self._engine = engine
        self.vocabulary = engine.vocabulary
        self.longest = engine.config.longest
        self.device = torch.device("cpu")

    def __str__(self) -> str:
        return str(self._engine)

    def ready(self) -> AbstractContextManager[None]:
        """It always is."""
        return nullcontext()

    def read(self, texts: Sequence[Sequence[int]]) -> tuple[Reading, Float[Tensor, "b v"]]:
        """Read texts, together what fits into one pass."""
        read, logits = self._engine.read(texts)
        return _EngineReading(read, len(texts)), torch.from_numpy(logits)


class _EngineReading:
    def __init__(self, texts: Texts, rows: int) -> None:
        self._texts = texts
        self._rows = rows

    def advance(self, tokens_r: Int[Tensor, " r"]) -> Float[Tensor, "r v"]:
        tokens = [[token] for token in tokens_r.tolist()]
        return torch.from_numpy(self._texts.advance(range(self._rows), tokens))

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        rows = rows_r.tolist()
        self._texts.select(rows)
        self._rows = len(rows)
