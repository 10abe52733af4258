"""Who goes on with texts: the engine, or PyTorch where the engine can't."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch

from regard.decoding.reading import Reading
from regard.engine import native, support
from regard.engine.engine import Dtype
from regard.engine.language_model import LanguageModelEngine, Texts
from regard.engine.native import EngineError
from regard.errors import ModelError
from regard.serving.engines import HINT, check_names
from regard.serving.opening import OpenedEncoder, OpenedLanguageModel
from regard.shapes import Float, Int, Tensor


def keeps_from(
    run: OpenedLanguageModel | OpenedEncoder, *, engine: str, dtype: str | None
) -> str | None:
    """What keeps the engine from serving a run; None if nothing does.

    It is empty where PyTorch was asked for, there is no engine, or the model is on a GPU.

    Raises:
        RegardError: there is no such engine or dtype.
        EngineError: the engine must serve, and can't; says why.
    """
    check_names(engine, dtype)
    if engine == "torch":
        return ""
    required = engine == "native" or dtype not in {None, "float32"}
    if absence := native.absence():
        if required:
            raise EngineError(f"there is no engine: {absence}", hint="Use --engine torch.")
        return ""
    problem = support.refusal(run.recipe.model)
    if required and (problem or not run.held.on_cpu):
        raise EngineError(
            f"the engine does not support {problem or 'a GPU'}", where=str(run.path), hint=HINT
        )
    return problem or (None if run.held.on_cpu else "")


def language_reader(
    run: OpenedLanguageModel, *, dtype: str | None, threads: int | None
) -> "EngineReader":
    """The engine with a model that nothing keeps it from."""
    try:
        packed = LanguageModelEngine(
            run.recipe.model,
            run.held.arrays(),
            vocabulary=run.vocabulary.size,
            dtype=cast(Dtype, dtype or "float32"),
            threads=threads,
        )
    except ModelError:
        run.held.make()  # PyTorch says all that does not fit, and where
        raise
    return EngineReader(packed)


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
