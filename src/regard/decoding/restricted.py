"""A step of a search whose sentences have shortlists: nothing else is ever likely."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decoding.step import Step, StepOutput
from regard.shapes import Int, Tensor


class RestrictedStep:
    """Another step, its probabilities shared out among what each sentence may use.

    So the engine does, which computes nothing else.

    Args:
        step: a step at its start.
        allowed: for each sentence of the batch the ids that it may use, at least one.
        vocabulary: how many ids there are.
        device: where the step's tensors are.
    """

    def __init__(
        self,
        step: Step,
        allowed: Sequence[NDArray[np.int64]],
        *,
        vocabulary: int,
        device: torch.device,
    ) -> None:
        self._step = step
        forbidden_rv = torch.ones(len(allowed), vocabulary, dtype=torch.bool)
        for row, ids in enumerate(allowed):
            forbidden_rv[row, torch.as_tensor(ids)] = False
        self._forbidden_bv = forbidden_rv.to(device)
        self._sentence_r = torch.arange(len(allowed), device=device)

    def advance(self, tokens_r: Int[Tensor, " r"]) -> StepOutput:
        """Append one token to every row and say what may follow."""
        output = self._step.advance(tokens_r)
        kept_rv = output.log_probs_rv.masked_fill(self._forbidden_bv[self._sentence_r], -torch.inf)
        return StepOutput(kept_rv.log_softmax(-1), output.attention_rs)

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        """Go on with these of the present rows, in this order."""
        self._step.select(rows_r)
        self._sentence_r = self._sentence_r[rows_r]
