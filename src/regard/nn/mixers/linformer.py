"""Attention to a fixed number of mixtures of all tokens."""

from collections.abc import Sequence

import torch
from torch import nn

from regard.errors import ModelError
from regard.nn.attention import Heads, HeadShape
from regard.nn.cache import KeysValues, RecurrentState
from regard.nn.mixers.config import LinformerConfig
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.shapes import Float, Tensor


class Linformer(Heads, RowMixer):
    """`softmax(q (E k)^T / sqrt(d_k)) (F v)`: keys and values are mixed into `rank` of each.

    E and F have a trained column for each of `length` places, and are the same for all heads; a
    sequence has at most so many tokens. Every mixture holds tokens of both sides of a query, so
    there is no causal form, and no state. Time and memory grow with length times rank.

    Source: Wang et al. 2020, arXiv:2006.04768, equation 7.
    """

    def __init__(self, config: LinformerConfig, shape: HeadShape) -> None:
        super().__init__(shape)
        self.keys_rl = nn.Parameter(torch.empty(config.rank, config.length))
        self.values_rl = nn.Parameter(torch.empty(config.rank, config.length))
        for mixture in (self.keys_rl, self.values_rl):
            nn.init.normal_(mixture, std=config.length**-0.5)

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows, whose padding adds nothing to a mixture.

        Raises:
            ModelError: a row has more tokens than E and F have columns for.
        """
        if past is not None:
            raise ValueError("Linformer sees both sides, and has no past")
        query, seen = self.project(x_nld)
        key, value = seen.key_bhke, seen.value_bhkw
        if rows.mask_nl is not None:
            padding = ~rows.mask_nl[:, None, :, None]
            key, value = key.masked_fill(padding, 0.0), value.masked_fill(padding, 0.0)
        known = self.keys_rl.shape[1]
        length = rows.length if rows.count_n is None else int(rows.count_n.max())
        if length > known:
            raise ModelError(
                f"a sequence of {length} tokens is longer than the {known} places of a Linformer",
                hint="split the text, or train with a larger mixer.length",
            )
        key, value = (x[:, :, :length] for x in (key, value))
        mixed = KeysValues(self.keys_rl[:, :length] @ key, self.values_rl[:, :length] @ value)
        return self.join(self.weigh(query, mixed, None))

    def row_weights(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, heads: Sequence[int] | None
    ) -> Float[Tensor, "n h l l"]:
        """How much of each token's value comes out, by way of the mixtures.

        As mixtures may take from a token with a minus, so may these; they need not sum to 1.
        """
        query, seen = self.project(x_nld)
        length = rows.length
        if length > self.keys_rl.shape[1]:
            raise ModelError(f"the Linformer has {self.keys_rl.shape[1]} places, and {length} came")
        key, values_nrl = seen.key_bhke, self.values_rl[None, :, :length]
        if rows.mask_nl is not None:
            key = key.masked_fill(~rows.mask_nl[:, None, :, None], 0.0)
            values_nrl = values_nrl.masked_fill(~rows.mask_nl[:, None], 0.0)
        mixed = self.keys_rl[:, :length] @ key
        return self.weights_of(query, mixed, None, heads=heads) @ values_nrl[:, None]

    def new_past(self) -> RecurrentState:
        """There is none.

        Raises:
            ValueError: always.
        """
        raise ValueError("Linformer sees both sides, and has no past")
