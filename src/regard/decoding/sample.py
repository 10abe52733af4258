"""Sampling: the next token is drawn, from all or the likeliest, by each sentence's own dice."""

from collections.abc import Sequence

import torch

from regard.decoding.dice import ALL, FACTORS, STEP
from regard.shapes import Float, Int, Tensor


class Sampler:
    """Draws the next token of every row; a `Choice` for `follow`.

    First the log-probabilities are divided by `temperature`. Then the `top_k` likeliest tokens
    stay (0: all); of these, as few of the likeliest as together have at least the share `top_p`;
    and of these, the ones at least `min_p` times as likely as the likeliest. The others' shares
    go to those that stay, in proportion.

    The tokens that stay run a race: a token of share p arrives after a time -log(1 - u) / p, where
    u is random, its own, and the one that arrives first is drawn. Its chance is its share, and
    another computer's last bits hardly ever change who is first. What is drawn
    depends on the chain's key alone, so that a sentence is sampled the same in any batch.

    Args:
        keys_c: the key of every chain, from `chain_keys`.

    Source: top-k arXiv:1805.04833; top-p arXiv:1904.09751; min-p arXiv:2407.01082; the race, in
    its logarithm, arXiv:1411.0030.
    """

    def __init__(
        self,
        keys_c: Int[Tensor, " c"],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> None:
        self._keys_c = keys_c
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p
        self._min_p = min_p

    def __call__(
        self, log_probs_rv: Float[Tensor, "r v"], chain_r: Int[Tensor, " r"], length: int
    ) -> tuple[Float[Tensor, " r"], Int[Tensor, " r"]]:
        """Give the drawn tokens' own log-probabilities, not tempered, and the tokens."""
        logits_rk, ids_rk = self.kept(log_probs_rv)
        place_r = random_bits(self._keys_c[chain_r], torch.tensor(length))
        numbers = torch.arange(logits_rk.shape[1], device=place_r.device)
        waits_rk = waits(random_bits(place_r[:, None], numbers if ids_rk is None else ids_rk))
        place_r1 = (logits_rk - waits_rk.log_()).argmax(-1, keepdim=True)
        tokens_r1 = place_r1 if ids_rk is None else ids_rk.gather(1, place_r1)
        value_r = log_probs_rv.gather(1, tokens_r1)[:, 0]
        # One NaN in a row is a NaN in its greatest.
        value_r = torch.where(log_probs_rv.amax(-1).isnan(), torch.nan, value_r)
        return value_r, tokens_r1[:, 0]

    def kept(
        self, log_probs_rv: Float[Tensor, "r v"]
    ) -> tuple[Float[Tensor, "r k"], Int[Tensor, "r k"] | None]:
        """The tempered logits of the tokens, -inf where they may not be drawn, and their ids.

        Ids are None when the tokens come in the vocabulary's order.
        """
        ids_rk = None
        values_rk = log_probs_rv
        if 0 < self._top_k < log_probs_rv.shape[1]:
            values_rk, ids_rk = log_probs_rv.topk(self._top_k)
        elif self._top_p < 1:
            values_rk, ids_rk = log_probs_rv.sort(dim=-1, descending=True, stable=True)
        greatest_r1 = values_rk.amax(-1, keepdim=True)
        # A row where all is blocked would become NaN.
        shift_r1 = torch.where(greatest_r1 == -torch.inf, 0.0, greatest_r1)
        logits_rk = (values_rk - shift_r1).double() / self._temperature
        # The likeliest token's share is 1.
        if self._top_p < 1:
            shares_rk = logits_rk.exp()
            before_rk = shares_rk.cumsum(-1) - shares_rk
            beyond_rk = before_rk >= self._top_p * shares_rk.sum(-1, True)
            logits_rk = logits_rk.masked_fill(beyond_rk, -torch.inf)
        if self._min_p:
            logits_rk = logits_rk.masked_fill(logits_rk.exp() < self._min_p, -torch.inf)
        return logits_rk, ids_rk


def chain_keys(keys: Sequence[int]) -> Int[Tensor, " c"]:
    """Keys, as from `regard.decoding.dice`, for a `Sampler`."""
    return torch.tensor([_signed(key) for key in keys], dtype=torch.int64)


def random_bits(keys: Int[Tensor, "*#a"], numbers: Int[Tensor, "*#a"]) -> Int[Tensor, "*a"]:
    """`regard.decoding.dice.random_bits` for many; integers wrap, so signed ones do as well."""
    bits = keys + (numbers + 1) * _signed(STEP)
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        bits = (bits ^ _shifted(bits, shift)).mul_(_signed(factor))
    return bits ^ _shifted(bits, 31)


def waits(bits: Int[Tensor, "*a"]) -> Float[Tensor, "*a"]:
    """Times of waiting, exponentially distributed with the mean 1, always above 0 and finite."""
    # The upper 52 bits and a half: from 2**-53 to 1 - 2**-53, which float64 can hold.
    return _shifted(bits, 12).double().add_(0.5).mul_(-(2.0**-52)).log1p_().neg_()


def _shifted(bits: Tensor, by: int) -> Tensor:
    """To the right, with zeros coming in."""
    return (bits >> by).bitwise_and_((1 << 64 - by) - 1)


def _signed(number: int) -> int:
    return number - ALL if number >= ALL // 2 else number
