"""One step of a running search: the next token's log-probabilities for every live hypothesis."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from regard.models.transformer import Transformer
from regard.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class StepOutput:
    """What a step says about the next token of every row.

    `log_probs_rv` are natural logarithms of probabilities, so at most 0; the search may change
    them in place. `attention_rs` says where in the source each row looked, zero at padding, or
    is None where nobody asked.
    """

    log_probs_rv: Float[Tensor, "r v"]
    attention_rs: Float[Tensor, "r s"] | None = None


@runtime_checkable
class Step(Protocol):
    """A model in the middle of a search, with one row for every hypothesis that runs.

    At first there is one row a sentence, in the order of the batch.
    """

    def advance(self, tokens_r: Int[Tensor, " r"]) -> StepOutput:
        """Append one token to every row and say what may follow."""
        ...

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        """Go on with these of the present rows, in this order; a row may come often or never."""
        ...


class ModelStep:
    """The step of one encoder-decoder model; the source is encoded when it is made."""

    def __init__(
        self,
        model: Transformer,
        source_bs: Int[Tensor, "b s"],
        source_mask_bs: Bool[Tensor, "b s"],
        *,
        attention: bool = False,
    ) -> None:
        memory_bsd = model.encode(source_bs, source_mask_bs)
        self._model = model
        self._cache = model.start(memory_bsd, source_mask_bs)
        self._attention = attention

    def advance(self, tokens_r: Int[Tensor, " r"]) -> StepOutput:
        """Append one token to every row and say what may follow."""
        hidden_rtd, weights_rts = self._model.step(
            tokens_r[:, None], self._cache, attention=self._attention
        )
        log_probs_rv = full_precision(self._model.project(hidden_rtd[:, -1])).log_softmax(-1)
        attention_rs = None if weights_rts is None else full_precision(weights_rts[:, -1])
        return StepOutput(log_probs_rv, attention_rs)

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        """Go on with these of the present rows, in this order."""
        self._cache.select(rows_r)


class EnsembleStep:
    """Several steps as one: the logarithm of the mean of their probabilities.

    Every model has its own source vocabulary, and all have one target vocabulary. The attention
    is the first model's, since the others may have cut the source into other tokens.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)

    def advance(self, tokens_r: Int[Tensor, " r"]) -> StepOutput:
        """Append one token to every row and say what may follow."""
        outputs = [step.advance(tokens_r) for step in self._steps]
        stacked_mrv = torch.stack([output.log_probs_rv for output in outputs])
        # Rounding can lift the mean of certainties above 1, which no bound of a search expects.
        mean_rv = (stacked_mrv.logsumexp(0) - log(len(outputs))).clamp_(max=0)
        return StepOutput(mean_rv, outputs[0].attention_rs)

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        """Go on with these of the present rows, in this order."""
        for step in self._steps:
            step.select(rows_r)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off for the length of a `with` block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def full_precision(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Half precision made float32: log-probabilities would tie, and their sums drift."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
