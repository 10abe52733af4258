"""Who searches for translations: the engine, or PyTorch where the engine can't."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.decoding.config import DecodingConfig
from regard.decoding.hypothesis import Hypothesis
from regard.engine.engine import Dtype, Engine, Sampling
from regard.serving.choosing import in_engine, keeps_from
from regard.serving.opening import OpenedRun
from regard.text.shortlist import Shortlist
from regard.text.vocabulary import never_generated


@dataclass(frozen=True)
class Chosen:
    """Who translates.

    `engine` is None where PyTorch does. `reason` then says what of the models the engine does
    not support, and is empty where PyTorch was asked for or there is no engine to be had.
    """

    engine: Engine | None = None
    reason: str = ""

    def __str__(self) -> str:
        return "torch" if self.engine is None else str(self.engine)


def choose_engine(
    runs: Sequence[OpenedRun],
    *,
    engine: str = "auto",
    dtype: str | None = None,
    threads: int | None = None,
) -> Chosen:
    """Pack a model for the engine, if the engine may and can translate with it.

    Args:
        runs: the opened runs; the engine takes no ensemble.
        engine: "native" must, "auto" may, and "torch" may not.
        dtype: what the engine computes with; left out, float32. With any other it must be the
            engine, for PyTorch would give other translations.
        threads: CPU threads of the engine.

    Raises:
        RegardError: a name is unknown, or a dtype is asked of PyTorch that it has not.
        EngineError: the engine must translate, and can't; says why.
    """
    problem = keeps_from(runs, engine=engine, dtype=dtype)
    if problem is not None:
        return Chosen(reason=problem)
    run = runs[0]

    def make(weights: Mapping[str, Any], held: Dtype) -> Engine:
        return Engine(
            run.recipe.model,
            weights,
            source_vocabulary=run.tokenizers.source.size,
            target_vocabulary=run.tokenizers.target.size,
            dtype=held,
            threads=threads,
        )

    return Chosen(in_engine(run, dtype, make))


class EngineSearch:
    """The engine as a searcher of `regard.decoding.lines.translate_by`, for one run.

    With a shortlist, each sentence uses only what that lets it.
    """

    def __init__(self, engine: Engine, run: OpenedRun, shortlist: Shortlist | None = None) -> None:
        self._engine = engine
        self._shortlist = shortlist
        self._target = run.tokenizers.target

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        max_tokens: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        config: DecodingConfig,
        seeds: Sequence[int] = (),
        attention: bool = False,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source; with `attention`, the first with where it looked."""
        target = self._target
        found = self._engine.translate(
            sources,
            max_tokens=max_tokens,
            prefixes=prefixes if any(map(len, prefixes)) else None,
            bos=target.start_id,
            eos=target.eos_id,
            # Those that a search never generates: what it starts from, and all control ids.
            never=sorted({target.start_id, *never_generated(target)} - {target.eos_id}),
            beam=config.beam,
            n_best=config.n_best,
            alpha=config.alpha,
            coverage=config.coverage,
            min_tokens=config.min_tokens,
            no_repeat_ngram=config.no_repeat_ngram,
            batch_tokens=config.batch_tokens,
            sampling=None if config.method == "beam" else _sampling(config, seeds),
            shortlist=self._shortlist,
        )
        hypotheses = [
            [Hypothesis(each.tokens, each.score, each.log_prob, each.finished) for each in some]
            for some in found
        ]
        if attention:
            self._look(sources, hypotheses)
        return hypotheses

    def _look(
        self, sources: Sequence[Sequence[int]], hypotheses: Sequence[list[Hypothesis]]
    ) -> None:
        """Give the first of each where it looked: read again, all at once, it looks the same."""
        best = [some[0] for some in hypotheses]
        looked = self._engine.score(
            sources, [each.tokens for each in best], bos=self._target.start_id, attention=True
        )
        for some, each, seen in zip(hypotheses, best, looked, strict=True):
            some[0] = replace(each, attention_ts=seen.attention_ts)


def _sampling(config: DecodingConfig, seeds: Sequence[int]) -> Sampling:
    return Sampling(
        seeds=seeds,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
    )
