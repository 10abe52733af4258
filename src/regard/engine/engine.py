"""A model packed for translation: `Engine` takes sentences as ids and gives hypotheses."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard import machine
from regard.engine import native
from regard.engine.support import as_float32, kept_sections, native_config, require
from regard.errors import ModelError
from regard.models.config import TransformerConfig
from regard.text.shortlist import Shortlist

if TYPE_CHECKING:
    from regard.engine import _native

_MOST = 2**31 - 1  # that an int of the extension holds

Dtype = Literal["float32", "bfloat16", "int8", "int4"]


@dataclass(frozen=True)
class Found:
    """What a search came to; the fields are those of `regard.decoding.hypothesis.Hypothesis`."""

    tokens: tuple[int, ...]
    score: float
    log_prob: float
    finished: bool


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How texts are drawn, by the rule of `regard.decoding.sample`.

    `seeds` has the seed of each source; the others are as in
    `regard.decoding.config.DecodingConfig`.
    """

    seeds: Sequence[int]
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@dataclass(frozen=True)
class Scored:
    """What a model says of a target that was given.

    `log_prob` is the natural logarithm of the probability of the whole; all else has an entry for
    each token: `log_probs` what it adds to that, `best` the token that the model finds likeliest
    there (-1 where none may follow), `attention_ts` where the last layer looked in the source,
    averaged over the heads. What was not asked for is empty or None.
    """

    log_prob: float
    log_probs: tuple[float, ...]
    best: tuple[int, ...] = ()
    attention_ts: NDArray[np.float32] | None = field(default=None, compare=False)


class Engine:
    """The weights of an encoder-decoder, packed; the arrays they came in are not kept.

    A sentence's answer has the same bits whatever is translated beside it, in whatever order,
    and on however many threads.

    Args:
        config: what the model is made of.
        weights: float32 arrays by the names of the model's state dict; or, by their own names,
            what `regard.engine.packing.pack` made of them for the same dtype. That is bytes,
            each part on a cache line, which are kept and used where they are.
        source_vocabulary: number of source ids.
        target_vocabulary: number of target ids.
        dtype: what matrices are stored in. `int8` has a scale for each row of a matrix, and
            one for each token that it is applied to; `int4` has one for each 32 inputs of a
            row, and tokens as `int8`; `bfloat16` rounds both, too. Embeddings are rounded as
            the output projection where they are one matrix with it (but in `int4`), else
            bfloat16 beside all of these. Sums and all that is no matrix stay float32.
        threads: CPU threads to use; None takes what `default_threads` says.

    Raises:
        EngineError: there is no engine here, or it does not support the model; says which part.
        ModelError: the weights are not those of the config.
    """

    def __init__(
        self,
        config: TransformerConfig,
        weights: Mapping[str, NDArray[Any]],
        *,
        source_vocabulary: int,
        target_vocabulary: int,
        dtype: Dtype = "float32",
        threads: int | None = None,
    ) -> None:
        require(config)
        self.config = config
        self.dtype: Dtype = dtype
        self.isa = native.isa()
        self._shortlist: tuple[Shortlist, _native.Shortlist] | None = None
        self._kept = kept_sections(weights)
        try:
            self._native: _native.Engine = native.module().Engine(
                config=native_config(
                    config,
                    source_vocabulary=source_vocabulary,
                    target_vocabulary=target_vocabulary,
                ),
                weights=self._kept or as_float32(weights),
                dtype=dtype,
                threads=default_threads() if threads is None else threads,
            )
        except ValueError as error:
            raise ModelError(str(error)) from None

    @property
    def threads(self) -> int:
        """How many threads compute."""
        return self._native.threads

    @property
    def bytes(self) -> int:
        """What the packed weights take in memory."""
        return self._native.bytes

    def __str__(self) -> str:
        return f"native {self.dtype} on {self.isa}"

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        *,
        max_tokens: Sequence[int],
        bos: int,
        eos: int,
        never: Sequence[int] = (),
        prefixes: Sequence[Sequence[int]] | None = None,
        beam: int = 4,
        n_best: int = 1,
        alpha: float = 0.6,
        coverage: float = 0.0,
        min_tokens: int = 0,
        no_repeat_ngram: int = 0,
        batch_tokens: int = 4096,
        sampling: Sampling | None = None,
        shortlist: Shortlist | None = None,
    ) -> list[list[Found]]:
        """Search each source: its hypotheses, the best first, in the order of the sources.

        They are those that `regard.decoding.search.search` finds. Ctrl-C stops it.

        Args:
            sources: the ids that the encoder reads, control tokens included.
            max_tokens: for each source the most tokens of a hypothesis, without the end.
            bos: what the decoder starts from.
            eos: what ends a hypothesis.
            never: ids that are never generated; `eos` always may be.
            prefixes: for each source the ids that its hypotheses must begin with.
            beam: hypotheses kept at each step; 1 is greedy search.
            n_best: how many hypotheses of a source, at most.
            alpha: exponent of the length penalty.
            coverage: weight of the coverage penalty.
            min_tokens: the least tokens of a hypothesis.
            no_repeat_ngram: no run of so many tokens comes twice; 0 lets them.
            batch_tokens: bounds the source tokens times the beam that are worked on at once.
            sampling: draw `n_best` texts, in the place of a search; beam, alpha and coverage have
                no part in it.
            shortlist: what each sentence may use, of the model's vocabularies; probabilities are
                shared out among that alone, and only that is computed (but to sample).

        Raises:
            ModelError: the model's output is NaN, or an id or prefix is none of the model's, or
                the shortlist is not for it.
        """
        draw = sampling or Sampling(seeds=())
        with _explained():
            found = self._native.translate(
                sources,
                max_tokens=max_tokens,
                prefixes=[] if prefixes is None else prefixes,
                bos=bos,
                eos=eos,
                never=never,
                beam=beam,
                n_best=n_best,
                alpha=alpha,
                coverage=coverage,
                min_tokens=min_tokens,
                no_repeat_ngram=no_repeat_ngram,
                batch_tokens=batch_tokens,
                seeds=None if sampling is None else [seed % 2**64 for seed in draw.seeds],
                temperature=draw.temperature,
                top_k=min(draw.top_k, _MOST),
                top_p=draw.top_p,
                min_p=draw.min_p,
                shortlist=None if shortlist is None else self._ready(shortlist),
            )
        return [
            [Found(tuple(tokens), score, log_prob, done) for tokens, score, log_prob, done in each]
            for each in found
        ]

    def _ready(self, shortlist: Shortlist) -> "_native.Shortlist":
        """A shortlist as the extension has it, made once."""
        if self._shortlist is None or self._shortlist[0] is not shortlist:
            made = native.module().Shortlist(
                offsets=shortlist.offsets,
                tokens=shortlist.tokens,
                always=shortlist.always,
                targets=shortlist.targets,
            )
            self._shortlist = (shortlist, made)
        return self._shortlist[1]

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        bos: int,
        best: bool = False,
        never: Sequence[int] = (),
        attention: bool = False,
    ) -> list[Scored]:
        """How likely each token of the targets is, given the source and the tokens before it.

        All places of a target are computed at once, with the bits that a search computes one
        after the other. Ctrl-C stops it.

        Args:
            sources: the ids that the encoder reads, control tokens included.
            targets: for each source what is predicted: the ids of its target, and the end token
                where it counts.
            bos: what the decoder starts from.
            best: also find the likeliest token at each place.
            never: ids that are never the likeliest.
            attention: also say where in the source each place looked.

        Raises:
            ModelError: the model's output is NaN, or an id is none of the model's, or a sequence
                is longer than its learned positions.
        """
        with _explained():
            found = self._native.score(
                sources, targets, bos=bos, never=never, best=best, attention=attention
            )
        return [
            Scored(log_prob, tuple(log_probs), tuple(likeliest), weights)
            for log_prob, log_probs, likeliest, weights in found
        ]


@contextmanager
def _explained() -> Iterator[None]:
    """The extension's errors as errors of a model."""
    try:
        yield
    except native.module().NotANumber as error:
        raise ModelError(
            str(error), hint="its weights are damaged, or it diverged in training"
        ) from None
    except ValueError as error:
        raise ModelError(str(error)) from None


def default_threads() -> int:
    """One for each core that this process may use, a container's limit included."""
    usable = machine.usable_cores()
    limit = machine.container_cores()
    return usable if limit is None else max(1, min(usable, round(limit)))
