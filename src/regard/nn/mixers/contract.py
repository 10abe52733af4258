"""What every sequence layer is: vectors in and out, and a state to go on from."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import nn

from regard.errors import ModelError
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

    def weights(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, heads: Sequence[int] | None = None
    ) -> Float[Tensor, "b h q k"]:
        """What each place takes from each in a whole pass over `x_bqd`, head by head.

        Computed anew and dense, whatever form the layer has; without dropout. A place of padding
        takes nothing and gives nothing.

        Args:
            x_bqd: what comes into the layer.
            span: the places; no step, which sees others than these.
            heads: which heads, in the order of the result; None = all.

        Raises:
            ModelError: the layer has no such weights, or not so many heads.
        """
        raise ModelError(f"a {type(self).__name__} layer has no weights of attention")


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

    def row_weights(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, heads: Sequence[int] | None
    ) -> Float[Tensor, "n h l l"]:
        """The weights over rows whose padding is 0; those of padding are not asked for.

        Raises:
            ModelError: the layer has no such weights.
        """
        raise ModelError(f"a {type(self).__name__} layer has no weights of attention")

    def weights(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, heads: Sequence[int] | None = None
    ) -> Float[Tensor, "b h q k"]:
        """What each place takes from each in a whole pass over `x_bqd`, head by head."""
        rows = span.rows
        return rows.put_pairs(self.row_weights(rows.take(x_bqd), rows, heads))

    def new_past(self) -> RecurrentState:
        """What to remember of no token yet."""
        return RecurrentState()
