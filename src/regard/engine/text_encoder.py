"""An encoder packed for use: vectors of texts, logits of classes and of tokens at masked places."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.engine import native
from regard.engine.engine import Dtype, default_threads
from regard.engine.support import as_float32, encoder_config, kept_sections, require
from regard.errors import ModelError
from regard.models.config import EncoderConfig

if TYPE_CHECKING:
    from regard.engine import _native

Floats = NDArray[np.float32]


class TextEncoderEngine:
    """The weights of an encoder, packed; the arrays they came in are not kept.

    What comes of a text has the same bits whatever is encoded beside it. Pooler and classifier
    stay float32 in every dtype.

    Args:
        config: what the model is made of.
        weights: float32 arrays by the names of the model's state dict, or what
            `regard.engine.packing.pack` made of them, as of `regard.engine.engine.Engine`.
        vocabulary: number of ids.
        classes: how many labels it tells apart; 0 for no classifier.
        dtype: as of `regard.engine.engine.Engine`.
        threads: CPU threads to use; None takes what `default_threads` says.

    Raises:
        EngineError: there is no engine here, or it does not support the model; says which part.
        ModelError: the weights are not those of the config.
    """

    def __init__(
        self,
        config: EncoderConfig,
        weights: Mapping[str, NDArray[Any]],
        *,
        vocabulary: int,
        classes: int = 0,
        dtype: Dtype = "float32",
        threads: int | None = None,
    ) -> None:
        require(config)
        self.config = config
        self.dtype: Dtype = dtype
        self.isa = native.isa()
        self._kept = kept_sections(weights)
        try:
            self._native: _native.TextEncoder = native.module().TextEncoder(
                config=encoder_config(config, vocabulary=vocabulary, classes=classes),
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

    def pool(self, texts: Sequence[Sequence[int]], pooling: Literal["mean", "cls"]) -> Floats:
        """A vector for each text of ids: the mean of its tokens', or the first one's.

        Raises:
            ModelError: a text is empty, is longer than the model's positions, or holds an id that
                is none of the model's. So do the others here.
        """
        try:
            return self._native.pool(texts, pooling=pooling)
        except ValueError as error:
            raise ModelError(str(error)) from None

    def classify(self, texts: Sequence[Sequence[int]]) -> Floats:
        """The logits of the labels of each text.

        Raises:
            ModelError: or the model has no classifier.
        """
        try:
            return self._native.classify(texts, pooling=self.config.classifier_pooling)
        except ValueError as error:
            raise ModelError(str(error)) from None

    def predict(self, text: Sequence[int], places: Sequence[int]) -> Floats:
        """The logits of the tokens that may stand at these places of a text.

        Raises:
            ModelError: or the model has no prediction head, or a place is not there.
        """
        try:
            return self._native.predict(text, places)
        except ValueError as error:
            raise ModelError(str(error)) from None
