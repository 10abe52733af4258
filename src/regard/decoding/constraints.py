"""What may follow: control tokens, minimum length, repeated n-grams and forced prefixes."""

from collections.abc import Sequence
from typing import Self

import torch

from regard.errors import ModelError, NotFiniteError
from regard.shapes import Float, Int, Tensor

_FREE = -1


class Constraints:
    """Takes away the tokens that may not follow, by setting their log-probabilities to -inf.

    Args:
        eos: the end token, which may not come before `min_tokens` tokens.
        control: tokens that are never generated.
        no_repeat_ngram: no n-gram of this many tokens comes twice in a hypothesis (0: may).
        prefix_bp: for every sentence the tokens that it must begin with, filled up with -1.
            What the prefix holds is neither blocked nor held back by the other rules.
    """

    def __init__(
        self,
        *,
        eos: int,
        control: Sequence[int] = (),
        min_tokens: int = 0,
        no_repeat_ngram: int = 0,
        prefix_bp: Int[Tensor, "b p"] | None = None,
    ) -> None:
        self._eos = eos
        self._control = tuple(control)
        self._min_tokens = min_tokens
        self._no_repeat_ngram = no_repeat_ngram
        self._prefix_bp = prefix_bp

    @classmethod
    def of_prefix(
        cls,
        prefix: Sequence[Sequence[int]] | None,
        *,
        eos: int,
        control: Sequence[int],
        min_tokens: int,
        no_repeat_ngram: int,
        device: torch.device,
    ) -> Self:
        """Constraints with a list of tokens a sentence as prefix.

        Raises:
            ModelError: a prefix holds a control token or the end token.
        """
        prefix_bp = None
        if prefix is not None and any(len(tokens) for tokens in prefix):
            forbidden = {eos, *control}
            for tokens in prefix:
                if not forbidden.isdisjoint(tokens):
                    raise ModelError("a target prefix may not hold control tokens")
            longest = max(len(tokens) for tokens in prefix)
            prefix_bp = torch.tensor(
                [[*tokens, *[_FREE] * (longest - len(tokens))] for tokens in prefix],
                dtype=torch.int64,
                device=device,
            )
        return cls(
            eos=eos,
            control=control,
            min_tokens=min_tokens,
            no_repeat_ngram=no_repeat_ngram,
            prefix_bp=prefix_bp,
        )

    def apply(
        self,
        log_probs_rv: Float[Tensor, "r v"],
        tokens_rt: Int[Tensor, "r t"],
        sentence_r: Int[Tensor, " r"],
    ) -> None:
        """Block in place what may not follow `tokens_rt`; row r belongs to sentence_r[r]."""
        length = tokens_rt.shape[1]
        forced = None
        if self._prefix_bp is not None and length < self._prefix_bp.shape[1]:
            next_r = self._prefix_bp[sentence_r, length]
            rows = (next_r != _FREE).nonzero()[:, 0]
            columns = next_r[rows]
            forced = (rows, columns, log_probs_rv[rows, columns])
        for token in self._control:
            if token < log_probs_rv.shape[1]:
                log_probs_rv[:, token] = -torch.inf
        if length < self._min_tokens:
            log_probs_rv[:, self._eos] = -torch.inf
        if self._no_repeat_ngram:
            self._block_repeats(log_probs_rv, tokens_rt)
        if forced is not None:
            rows, columns, values = forced
            log_probs_rv[rows] = -torch.inf
            log_probs_rv[rows, columns] = values

    def _block_repeats(
        self, log_probs_rv: Float[Tensor, "r v"], tokens_rt: Int[Tensor, "r t"]
    ) -> None:
        size = self._no_repeat_ngram
        length = tokens_rt.shape[1]
        if length < size:
            return
        windows_rwn = tokens_rt.unfold(1, size, 1)
        suffix_rn = tokens_rt[:, length - size + 1 :]
        seen_rw = (windows_rwn[:, :, : size - 1] == suffix_rn[:, None]).all(-1)
        rows, places = seen_rw.nonzero(as_tuple=True)
        log_probs_rv[rows, windows_rwn[rows, places, size - 1]] = -torch.inf


def check_finite(best_r: Float[Tensor, " r"]) -> None:
    """Refuse a model that answers with NaN.

    Args:
        best_r: every row's greatest log-probability, which is NaN when any in the row is.

    Raises:
        NotFiniteError: a log-probability is NaN.
    """
    if bool(best_r.isnan().any()):
        raise NotFiniteError
