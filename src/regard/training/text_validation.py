"""How good a model of one side of text is now, on text that it is not trained on."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import nn
from torch.nn import functional

from regard.decoding.generate import generate
from regard.decoding.generation import GenerationConfig
from regard.decoding.step import evaluating
from regard.evaluation.classes import confusion
from regard.evaluation.metrics import perplexity
from regard.kernels.products import linear
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.shapes import Float, Int, Tensor
from regard.text.vocabulary import Vocabulary
from regard.training.losses import (
    language_model_loss,
    linear_cross_entropy,
    masked_states,
)
from regard.training.parts import LabelPart, Part, TextPart
from regard.training.validation import Continued, Validation

AnyPart = TypeVar("AnyPart", bound=Part)

_CONTINUED_TOKENS = 60
_CHUNK_ROWS = 512


class LanguageValidator:
    """Scores the held-out text with a decoder-only model, and goes on with the start of a few.

    Each token is predicted once, from those before it in its window.

    Args:
        parts: gives the windows of the text, the same each time.
        text_bytes: the length of that text in UTF-8.
        vocabulary: what it was cut with.
        prompts: what to go on with.
        generation: how to draw.
    """

    def __init__(
        self,
        parts: Callable[[], Iterable[TextPart]],
        text_bytes: int,
        vocabulary: Vocabulary,
        *,
        prompts: Sequence[str] = (),
        generation: GenerationConfig | None = None,
    ) -> None:
        self._parts = parts
        self._bytes = text_bytes
        self._vocabulary = vocabulary
        self._prompts = list(prompts)
        few = {"samples": 1, "max_tokens": _CONTINUED_TOKENS}
        self._generation = (generation or GenerationConfig()).model_copy(update=few)

    def run(self, model: nn.Module) -> Validation:
        """Measure a model; takes as long as reading the text once."""
        started = time.perf_counter()
        nll, tokens = 0.0, 0
        with _measuring(model):
            for part in _on(model, self._parts()):
                nll += float(language_model_loss(model, part, 0.0).nll)
                tokens += len(part.targets_n)
        return Validation(
            {
                "loss": nll / tokens,
                "perplexity": perplexity(-nll, tokens),
                "bits_per_byte": nll / math.log(2) / self._bytes,
            },
            samples=self._continued(cast(LanguageModel, model)),
            seconds=time.perf_counter() - started,
        )

    def _continued(self, model: LanguageModel) -> tuple[Continued, ...]:
        with _measuring(model):
            found = generate(model, self._vocabulary, self._prompts, self._generation)
        return tuple(
            Continued(prompt, samples[0].text)
            for prompt, samples in zip(self._prompts, found, strict=True)
        )


class MaskedValidator:
    """Lets an encoder-only model fill masked tokens of the held-out text, the same each time."""

    def __init__(self, parts: Callable[[], Iterable[TextPart]]) -> None:
        self._parts = parts

    def run(self, model: nn.Module) -> Validation:
        """Measure a model; takes as long as reading the text once."""
        started = time.perf_counter()
        network = cast(TextEncoder, model)
        nll, right, tokens = 0.0, 0, 0
        with _measuring(model):
            for part in _on(model, self._parts()):
                hidden_nd = masked_states(network, part)
                weight, bias = network.output_weight, network.output_bias
                sums = linear_cross_entropy(hidden_nd, weight, part.targets_n, 0.0, bias_v=bias)
                nll += float(sums.nll)
                right += _right(network, hidden_nd, part.targets_n)
                tokens += len(part.targets_n)
        return Validation(
            {
                "loss": nll / tokens,
                "perplexity": perplexity(-nll, tokens),
                "accuracy": right / tokens,
            },
            seconds=time.perf_counter() - started,
        )


class LabelValidator:
    """Lets a classifier label the held-out texts.

    Args:
        parts: gives the texts, the same each time.
        names: the labels, in the order of the classes.
    """

    def __init__(self, parts: Callable[[], Iterable[LabelPart]], names: Sequence[str]) -> None:
        self._parts = parts
        self._names = tuple(names)

    def run(self, model: nn.Module) -> Validation:
        """Measure a model; takes as long as reading the texts once."""
        started = time.perf_counter()
        network = cast(TextEncoder, model)
        nll = 0.0
        right: list[int] = []
        given: list[int] = []
        with _measuring(model):
            for part in _on(model, self._parts()):
                logits_bc = network.classify(network(part.ids_bs, part.mask_bs), part.mask_bs)
                nll += float(functional.cross_entropy(logits_bc, part.labels_b, reduction="sum"))
                right += part.labels_b.tolist()
                given += logits_bc.argmax(1).tolist()
        found = confusion(self._names, right, given)
        return Validation(
            {"loss": nll / len(right), "accuracy": found.accuracy, "f1": found.macro_f1},
            seconds=time.perf_counter() - started,
            confusion=found,
        )


@contextmanager
def _measuring(model: nn.Module) -> Iterator[None]:
    """No dropout, no gradients and no autocast for the length of a `with` block."""
    with (
        evaluating(model),
        torch.no_grad(),
        torch.autocast(_device_of(model).type, enabled=False),
    ):
        yield


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _on(model: nn.Module, parts: Iterable[AnyPart]) -> Iterator[AnyPart]:
    """The parts on the device of the model."""
    device = _device_of(model)
    for part in parts:
        yield part.to(device)


def _right(
    network: TextEncoder, hidden_nd: Float[Tensor, "n d"], targets_n: Int[Tensor, " n"]
) -> int:
    """How many targets are the likeliest token at their place."""
    right = 0
    for start in range(0, len(targets_n), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        logits_cv = linear(hidden_nd[rows], network.output_weight, network.output_bias)
        right += int((logits_cv.argmax(1) == targets_n[rows]).sum())
    return right
