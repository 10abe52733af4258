"""Who computes what an encoder makes of texts: the engine, or PyTorch where the engine can't."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from regard.engine.engine import Dtype
from regard.engine.text_encoder import TextEncoderEngine
from regard.errors import NotFiniteError
from regard.serving.choosing import in_engine
from regard.serving.opening import OpenedEncoder
from regard.signals import load_torch

if TYPE_CHECKING:
    from regard.models.encoder import Pooling
else:
    Pooling = str

# ruff: noqa: PLC0415 - the engine does without what imports torch

Rows = Sequence[Sequence[int]]


@runtime_checkable
class Encoding(Protocol):
    """What is asked of an encoder, of rows of ids; all raise ModelError if NaN comes of them."""

    def embed(self, rows: Rows, pooling: Pooling, *, normalize: bool) -> NDArray[np.float32]:
        """A vector for each row."""
        ...

    def label_shares(self, rows: Rows) -> NDArray[np.float64]:
        """The probability of each label for each row."""
        ...

    def mask_shares(self, row: Sequence[int], mask_id: int) -> NDArray[np.float64]:
        """The probability of each token at each masked place of a row."""
        ...


class TorchEncoding:
    """PyTorch does it."""

    def __init__(self, run: OpenedEncoder) -> None:
        load_torch("regard.decoding.encode")
        self._run = run

    def __str__(self) -> str:
        return "torch"

    def embed(self, rows: Rows, pooling: Pooling, *, normalize: bool) -> NDArray[np.float32]:
        """A vector for each row."""
        from regard.decoding import encode

        vectors_nd = encode.embed(self._run.model, rows, pooling=pooling, normalize=normalize)
        array: NDArray[np.float32] = vectors_nd.float().numpy()
        return array

    def label_shares(self, rows: Rows) -> NDArray[np.float64]:
        """The probability of each label for each row."""
        from regard.decoding import encode

        shares: NDArray[np.float64] = encode.label_shares(self._run.model, rows).numpy()
        return shares

    def mask_shares(self, row: Sequence[int], mask_id: int) -> NDArray[np.float64]:
        """The probability of each token at each masked place of a row."""
        from regard.decoding import encode

        shares: NDArray[np.float64] = encode.mask_shares(self._run.model, row, mask_id).numpy()
        return shares


class EngineEncoding:
    """The engine does it; what it gives is worked on row by row, so that bits stay the same."""

    def __init__(self, engine: TextEncoderEngine) -> None:
        self._engine = engine

    def __str__(self) -> str:
        return str(self._engine)

    def embed(self, rows: Rows, pooling: Pooling, *, normalize: bool) -> NDArray[np.float32]:
        """A vector for each row."""
        vectors = _finite(self._engine.pool(rows, pooling))
        if not normalize:
            return vectors
        lengths = [max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors]
        scaled: NDArray[np.float32] = vectors / np.array(lengths, np.float32)[:, None]
        return scaled

    def label_shares(self, rows: Rows) -> NDArray[np.float64]:
        """The probability of each label for each row."""
        return _softmax(_finite(self._engine.classify(rows)))

    def mask_shares(self, row: Sequence[int], mask_id: int) -> NDArray[np.float64]:
        """The probability of each token at each masked place of a row."""
        masked = [place for place, token in enumerate(row) if token == mask_id]
        return _softmax(_finite(self._engine.predict(row, masked)))


def engine_encoding(
    run: OpenedEncoder, *, dtype: str | None, threads: int | None
) -> EngineEncoding:
    """The engine with a model that nothing keeps it from.

    Raises:
        As `regard.serving.choosing.in_engine`.
    """

    def make(weights: Mapping[str, Any], held: Dtype) -> TextEncoderEngine:
        return TextEncoderEngine(
            run.recipe.model,
            weights,
            vocabulary=run.vocabulary.size,
            classes=len(run.recipe.labels.names),
            dtype=held,
            threads=threads,
        )

    return EngineEncoding(in_engine(run, dtype, make))


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    shares: NDArray[np.float64] = np.exp(wide - wide.max(axis=-1, keepdims=True, initial=-np.inf))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def _finite(x: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(x).all():
        raise NotFiniteError(infinite=True)
    return x
