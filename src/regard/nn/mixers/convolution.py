"""A gated convolution over a sequence."""

import torch
from torch import nn
from torch.nn import functional

from regard.kernels.products import Linear
from regard.nn.cache import RecurrentState
from regard.nn.mixers.config import ConvolutionConfig
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.shapes import Float, Tensor


class Convolution(RowMixer):
    """`output(a * sigmoid(b))`, with a and b linear in the `width` vectors around a place.

    A causal one takes the last `width` vectors, the place's own included; else they are around
    it, and with an even width one more is before it than after. With `dilation` they are every
    so-manieth. What lies outside of the sequence is 0.

    L layers carry over `L (width - 1) dilation` places: that is the receptive field, less one.
    Its state are the last `(width - 1) dilation` vectors: `(width - 1) dilation d_model` numbers
    a row.

    Source: Gehring et al. 2017 (ConvS2S), arXiv:1705.03122, section 3.2; dilated and causal:
    Kalchbrenner et al. 2016 (ByteNet), arXiv:1610.10099.
    """

    def __init__(self, config: ConvolutionConfig, d_model: int, *, causal: bool) -> None:
        super().__init__()
        self.width = config.width
        self.dilation = config.dilation
        self.back = (config.width - 1 if causal else config.width // 2) * config.dilation
        self.ahead = (config.width - 1) * config.dilation - self.back
        # One matrix: the vectors side by side, the farthest back first.
        self.input = Linear(config.width * d_model, 2 * d_model)
        self.output = Linear(d_model, d_model)
        for linear in (self.input, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows, whose padding is 0 as what lies outside of them."""
        seen_nkd = x_nld
        if past is not None and past.tensors:
            seen_nkd = torch.cat([past.tensors[0], x_nld], 1)
        kept = seen_nkd.shape[1] - rows.length
        # A gap as long as all there is leads outside of it, and so does a longer one.
        gap = min(self.dilation, seen_nkd.shape[1])
        back, ahead = (reach // self.dilation * gap for reach in (self.back, self.ahead))
        padded = functional.pad(seen_nkd, (0, 0, back - kept, ahead))
        near_nldk = padded.unfold(1, back + ahead + 1, 1)[..., ::gap]
        value, gate = self.input(near_nldk.transpose(2, 3).flatten(2)).chunk(2, -1)
        y: Tensor = self.output(value * torch.sigmoid(gate))
        if past is not None:
            past.tensors = (rows.last(seen_nkd[:, None], self.back)[:, 0],)
        return y
