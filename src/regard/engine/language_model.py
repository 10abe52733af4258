"""A language model packed for generation: it reads texts and says what may follow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from regard.engine import native
from regard.engine.engine import Dtype, default_threads
from regard.engine.support import as_float32, kept_sections, language_config, require
from regard.errors import ModelError
from regard.models.config import DecoderConfig

if TYPE_CHECKING:
    from regard.engine import _native

Logits = NDArray[np.float32]

# Tokens of prompts that a call reads at once: between calls Ctrl-C is noticed.
_READ = 2048


class LanguageModelEngine:
    """The weights of a decoder, packed; the arrays they came in are not kept.

    What follows a text has the same bits whatever is gone on with beside it.

    Args:
        config: what the model is made of.
        weights: float32 arrays by the names of the model's state dict, or what
            `regard.engine.packing.pack` made of them, as of `regard.engine.engine.Engine`.
        vocabulary: number of ids.
        dtype: as of `regard.engine.engine.Engine`.
        threads: CPU threads to use; None takes what `default_threads` says.

    Raises:
        EngineError: there is no engine here, or it does not support the model; says which part.
        ModelError: the weights are not those of the config.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, NDArray[Any]],
        *,
        vocabulary: int,
        dtype: Dtype = "float32",
        threads: int | None = None,
    ) -> None:
        require(config)
        self.config = config
        self.vocabulary = vocabulary
        self.dtype: Dtype = dtype
        self.isa = native.isa()
        self._kept = kept_sections(weights)
        try:
            self._native: _native.LanguageModel = native.module().LanguageModel(
                config=language_config(config, vocabulary=vocabulary),
                weights=self._kept or as_float32(weights),
                dtype=dtype,
                threads=default_threads() if threads is None else threads,
            )
        except ValueError as error:
            raise ModelError(str(error)) from None

    @property
    def bytes(self) -> int:
        """What the packed weights take in memory."""
        return self._native.bytes

    def __str__(self) -> str:
        return f"native {self.dtype} on {self.isa}"

    def read(self, texts: Sequence[Sequence[int]]) -> tuple["Texts", Logits]:
        """Read texts from their beginning; give them, and the logits of what follows, a row each.

        Raises:
            ModelError: a text is empty, is longer than the model's positions, or holds an id that
                is none of the model's.
        """
        made = Texts(self, len(texts))
        logits = np.empty((len(texts), self.vocabulary), np.float32)
        rest = []
        for row, ids in enumerate(texts):
            start = 0
            while len(ids) - start > _READ:
                made.advance([row], [ids[start : start + _READ]], logits=False)
                start += _READ
            rest.append(ids[start:])
        first = 0
        while first < len(texts):
            last, tokens = first + 1, len(rest[first])
            while last < len(texts) and tokens + len(rest[last]) <= _READ:
                tokens += len(rest[last])
                last += 1
            logits[first:last] = made.advance(range(first, last), rest[first:last])
            first = last
        return made, logits


class Texts:
    """Texts that a model has read, a row each; see `LanguageModelEngine.read`."""

    def __init__(self, engine: LanguageModelEngine, rows: int) -> None:
        self._engine = engine  # whose weights may lie in a file that it keeps mapped
        self._native: _native.Texts = native.module().Texts(engine._native, rows)

    @overload
    def advance(
        self,
        rows: Sequence[int],
        tokens: Sequence[Sequence[int]],
        *,
        logits: Literal[True] = True,
    ) -> Logits: ...

    @overload
    def advance(
        self, rows: Sequence[int], tokens: Sequence[Sequence[int]], *, logits: Literal[False]
    ) -> None: ...

    def advance(
        self, rows: Sequence[int], tokens: Sequence[Sequence[int]], *, logits: bool = True
    ) -> Logits | None:
        """Append tokens to each of these rows; give the logits of what follows each, if wanted.

        Raises:
            ModelError: a row is not there or named twice, has no tokens or more than the model's
                positions, or an id is none of the model's.
        """
        try:
            return self._native.advance(rows, tokens, logits=logits)
        except ValueError as error:
            raise ModelError(str(error)) from None

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these of the present rows, in this order; a row may come often or never.

        Raises:
            ModelError: a row is not there.
        """
        try:
            self._native.select(rows)
        except ValueError as error:
            raise ModelError(str(error)) from None
