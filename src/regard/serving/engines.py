"""Who searches for translations: the engine, or PyTorch where the engine can't."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast, get_args

from regard.decoding.config import DecodingConfig
from regard.decoding.hypothesis import Hypothesis
from regard.engine import native, support
from regard.engine.engine import Dtype, Engine, Sampling
from regard.engine.native import EngineError
from regard.errors import ModelError, RegardError, RunFolderError
from regard.serving.opening import OpenedRun
from regard.text.vocabulary import never_generated

EngineName = Literal["auto", "native", "torch"]

HINT: Final = "Leave the engine to be chosen, or use --engine torch."


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


def wanted_device(device: str, engine: str) -> str:
    """Where the models go: the engine works on the CPU, whatever GPU there is."""
    return "cpu" if engine == "native" and device == "auto" else device


def check_names(engine: str, dtype: str | None) -> None:
    """Refuse what is no engine or no dtype, or the two together.

    Raises:
        RegardError: says which.
    """
    for where, given, known in (
        ("engine", engine, get_args(EngineName)),
        ("dtype", dtype or "float32", get_args(Dtype)),
    ):
        if given not in known:
            names = ", ".join(f'"{name}"' for name in known)
            raise RegardError(f'expected one of {names}, got "{given}"', where=where)
    if engine == "torch" and dtype not in {None, "float32"}:
        raise RegardError(f"{dtype} needs the engine, and PyTorch was asked for", where="dtype")


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
    check_names(engine, dtype)
    if engine == "torch":
        return Chosen()
    packed = next((run.packed for run in runs if run.packed is not None), None)
    required = engine == "native" or dtype not in {None, "float32"} or packed is not None
    if packed is not None and dtype not in {None, packed.dtype}:
        raise RegardError(
            f"{dtype} was asked for, and the run's weights are packed as {packed.dtype}",
            where="dtype",
            hint="Use the run that it was made of with regard quantize.",
        )
    absence, refusal = native.absence(), _refusal(runs)
    on_gpu = not runs[0].held.on_cpu
    if absence or refusal or on_gpu:
        if not required:
            return Chosen(reason="" if absence or on_gpu else refusal)
        if absence:
            raise EngineError(f"there is no engine: {absence}", hint="Use --engine torch.")
        raise EngineError(
            f"the engine does not support {refusal or 'a GPU'}",
            where=str(runs[0].path),
            hint=HINT,
        )
    held = packed.dtype if packed else dtype or "float32"
    return Chosen(_packed(runs[0], dtype=cast(Dtype, held), threads=threads))


def _packed(run: OpenedRun, *, dtype: Dtype, threads: int | None) -> Engine:
    """The model of a run in the engine."""
    try:
        return Engine(
            run.recipe.model,
            run.held.arrays() if run.packed is None else run.packed.sections,
            source_vocabulary=run.tokenizers.source.size,
            target_vocabulary=run.tokenizers.target.size,
            dtype=dtype,
            threads=threads,
        )
    except ModelError as error:
        if run.packed is not None:
            raise RunFolderError(
                f"its packed weights do not fit its recipe: {error}",
                where=str(run.path),
                hint="Make it again with regard quantize.",
            ) from None
        run.held.make()  # PyTorch says all that does not fit, and where
        raise


class EngineSearch:
    """The engine as a searcher of `regard.decoding.lines.translate_by`, for one run."""

    def __init__(self, engine: Engine, run: OpenedRun) -> None:
        self._engine = engine
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


def _refusal(runs: Sequence[OpenedRun]) -> str:
    """What of the models the engine does not support."""
    return "an ensemble" if len(runs) > 1 else support.refusal(runs[0].recipe.model)
