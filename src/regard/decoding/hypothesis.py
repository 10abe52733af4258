"""What a search finds, and how it is scored."""

import math
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

# A row a target token, a column a source token. What the engine finds needs no torch.
Attention = NDArray[Any]

_GREATEST_LOG = 200 * math.log(10)


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a search came to.

    `tokens` hold neither the start nor the end token. `log_prob` is the natural logarithm of the
    probability of the tokens and, when `finished`, of the end token; `score` is what the
    hypotheses were ranked by, and for a sample the same as `log_prob`. `finished` is False when
    the search cut it: at the maximum length, or because nothing was allowed to follow.
    `attention_ts` holds for every token the attention over the source with which it was chosen,
    or None when it was not asked for.
    """

    tokens: tuple[int, ...]
    score: float
    log_prob: float
    finished: bool
    attention_ts: Attention | None = field(default=None, compare=False)


def length_penalty(length: int, alpha: float) -> float:
    """`((5 + length) / 6) ** alpha`, the end token counted in the length.

    It is kept between 1e-200 and 1e200, so that a score is finite whatever alpha is.

    Source: Wu et al. 2016, arXiv:1609.08144, equation 14.
    """
    growth = alpha * math.log((5 + length) / 6)
    if abs(growth) > _GREATEST_LOG:
        return math.exp(math.copysign(_GREATEST_LOG, growth))
    return float(((5 + length) / 6) ** alpha)
