"""Sampling: the next token is drawn, from all or the likeliest, by each sentence's own dice."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from regard.shapes import Float, Int, Tensor


class Sampler:
    """Draws the next token of every row; a `Choice` for `follow`.

    First the log-probabilities are divided by `temperature`. Then the `top_k` likeliest tokens
    stay (0: all); of these, as few of the likeliest as together have at least the share `top_p`;
    and of these, the ones at least `min_p` times as likely as the likeliest. The others' shares
    go to those that stay, in proportion. What is drawn depends on the chain's own random numbers
    alone, so that a sentence is sampled the same in any batch.

    Args:
        draws_ct: for every chain and every position a number from [0, 1), float64.

    Source: top-k arXiv:1805.04833; top-p arXiv:1904.09751; min-p arXiv:2407.01082.
    """

    def __init__(
        self,
        draws_ct: Float[Tensor, "c t"],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> None:
        self._draws_ct = draws_ct
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p
        self._min_p = min_p

    def __call__(
        self, log_probs_rv: Float[Tensor, "r v"], chain_r: Int[Tensor, " r"], length: int
    ) -> tuple[Float[Tensor, " r"], Int[Tensor, " r"]]:
        """Give the drawn tokens' own log-probabilities, not tempered, and the tokens."""
        kept_rk, ids_rk = self.shares(log_probs_rv)
        sums_rk = kept_rk.cumsum(-1)
        total_r = sums_rk[:, -1]
        # Rounding must not carry the draw past the last token that has a share.
        below_r = torch.nextafter(total_r, torch.zeros_like(total_r))
        point_r = torch.minimum(self._draws_ct[chain_r, length] * total_r, below_r)
        place_r1 = torch.searchsorted(sums_rk, point_r[:, None], right=True)
        place_r1 = place_r1.clamp(max=sums_rk.shape[1] - 1)
        tokens_r1 = place_r1 if ids_rk is None else ids_rk.gather(1, place_r1)
        value_r = log_probs_rv.gather(1, tokens_r1)[:, 0]
        # One NaN in a row is a NaN in its total.
        value_r = torch.where(total_r.isnan(), torch.nan, value_r)
        return value_r, tokens_r1[:, 0]

    def shares(
        self, log_probs_rv: Float[Tensor, "r v"]
    ) -> tuple[Float[Tensor, "r k"], Int[Tensor, "r k"] | None]:
        """The chance of every token that may be drawn, up to a factor, and their ids.

        Ids are None when the tokens come in the vocabulary's order.
        """
        ids_rk = None
        values_rk = log_probs_rv
        if 0 < self._top_k < log_probs_rv.shape[1]:
            values_rk, ids_rk = log_probs_rv.topk(self._top_k)
        elif self._top_p < 1:
            values_rk, ids_rk = log_probs_rv.sort(dim=-1, descending=True, stable=True)
        greatest_r1 = values_rk.amax(-1, keepdim=True)
        # A row where all is blocked would become NaN; it gets equal shares of what is blocked.
        shift_r1 = torch.where(greatest_r1 == -torch.inf, 0.0, greatest_r1)
        shares_rk = ((values_rk - shift_r1).double() / self._temperature).exp()
        if self._top_p < 1:
            before_rk = shares_rk.cumsum(-1) - shares_rk
            shares_rk = shares_rk.where(before_rk < self._top_p * shares_rk.sum(-1, True), 0.0)
        if self._min_p:
            # The likeliest token's share is 1.
            shares_rk = shares_rk.where(shares_rk >= self._min_p, 0.0)
        return shares_rk, ids_rk


def draws(seeds: Sequence[int], samples: int, positions: int) -> Float[Tensor, "c t"]:
    """Random numbers from [0, 1) for `samples` chains of each sentence, which has its own seed.

    A chain's numbers depend on its sentence's seed and on which of the samples it is, not on how
    many there are.
    """
    return torch.stack(
        [chain_draws(seed, sample, positions) for seed in seeds for sample in range(samples)]
    )


def seed_of(seed: int, *ids: Sequence[int]) -> int:
    """A seed out of what is gone on from, so that its samples are the same wherever it stands."""
    told = repr((seed, *map(list, ids))).encode("ascii")
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")


def chain_draws(seed: int, sample: int, positions: int) -> Float[Tensor, " t"]:
    """The random numbers of one chain: number `sample` of those with this seed."""
    return torch.from_numpy(np.random.Generator(np.random.PCG64([seed, sample])).random(positions))
