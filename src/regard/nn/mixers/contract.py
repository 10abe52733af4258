"""What every sequence layer is: vectors in and out, and a state to go on from."""

from abc import ABC, abstractmethod

from torch import nn

from regard.nn.cache import Past, PastKeysValues, RecurrentState
from regard.nn.mixers.rows import Rows
from regard.nn.mixers.span import Span
from regard.shapes import Float, Tensor


class Mixer(nn.Module, ABC):
    """A layer in which the places of a sequence tell each other; the rest of a model does not.

    What holds for each of them: alone, in a batch, padded on either side and packed with other
    documents a sequence gives the same; all at once, in chunks and step by step too (where it
    is causal); no place of padding is looked at, not even if it holds a NaN; a causal layer
    sees nothing after a place.
    """

    @abstractmethod
    def forward(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, past: Past | None = None
    ) -> Float[Tensor, "b q d"]:
        """The layer over the places of a span, after those of `past`, which it moves on."""

    @abstractmethod
    def new_past(self) -> Past:
        """What to remember of no token yet.

        Raises:
            ValueError: the layer is not causal.
        """


class RowMixer(Mixer):
    """A mixer that is told only of sequences in rows of their own, tokens first."""

    @abstractmethod
    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows whose padding is 0; what it gives for padding must be finite."""

    def forward(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, past: Past | None = None
    ) -> Float[Tensor, "b q d"]:
        """The layer over the places of a span, after those of `past`, which it moves on."""
        if isinstance(past, PastKeysValues):
            raise TypeError("this layer's past is a RecurrentState")
        rows = span.rows
        return rows.put(self.run(rows.take(x_bqd), rows, past))

    def new_past(self) -> RecurrentState:
        """What to remember of no token yet."""
        return RecurrentState()
