"""A trained model as a Python object: `regard.load("runs/ende").translate(["Hello"])`."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, cast, overload

from pydantic import ValidationError

from regard.arguments import items_of, path_of, plain_numbers, require, require_teller
from regard.counts import counted
from regard.decoding.config import DecodingConfig, changed_settings, without_effect
from regard.decoding.lines import most_positions, translate_by
from regard.decoding.scored import Limits, PairScore, score_by
from regard.decoding.translation import Translation
from regard.errors import DataError, RegardError
from regard.recipes.explain import explain
from regard.recipes.recipe import Recipe
from regard.serving.choosing import check_names, wanted_device
from regard.serving.engines import Chosen, EngineSearch, choose_engine
from regard.serving.opening import (
    OpenedRun,
    RunPath,
    open_run,
    require_same_target,
)
from regard.serving.place import Place
from regard.serving.scorer import EngineScorer
from regard.serving.strings import checked_strings, listed, refuse_unknown
from regard.signals import load_torch
from regard.text.corpus import Tokenizers
from regard.text.shortlist import Shortlist
from regard.weights.run_folder import RunFolder
from regard.weights.shortlists import read_shortlist

if TYPE_CHECKING:
    from regard.evaluation.judgement import Judgement
    from regard.models.transformer import Transformer
else:
    Judgement = Transformer = object

# ruff: noqa: PLC0415 - what needs torch is imported when it is needed: the engine does without


class DecodingOptions(TypedDict, total=False):
    """The keys of `DecodingConfig`, each of which a call may set for itself."""

    method: Literal["beam", "sample"]
    beam: int
    alpha: float
    coverage: float
    n_best: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    no_repeat_ngram: int
    min_tokens: int
    max_tokens: int
    max_extra_tokens: int
    batch_tokens: int


def load(
    path: RunPath | Sequence[RunPath],
    *,
    device: str = "auto",
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
    shortlist: bool = False,
) -> "Translator":
    """Open a trained run, or several as an ensemble, to translate with.

    ```python
    import regard

    translator = regard.load("runs/ende")
    print(translator.translate(["Hello", "How are you?"]))
    print(translator.translate("Hello", beam=8, alpha=1.0))
    ```

    Args:
        path: a run folder; or several, whose probabilities are averaged.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "cuda:1".
        threads: CPU threads to use, in the whole process where PyTorch computes; None leaves
            torch's setting, and gives the engine all cores.
        engine: who searches and scores: "native" is the engine, "torch" is PyTorch, "auto" the
            engine where there is one that supports the model, on the CPU.
        dtype: what the engine computes with, "float32" (the default), "bfloat16", "int8" or "int4".
            A run of `regard quantize` has but the one that it was packed in.
        shortlist: translate each sentence only with what the run's shortlist lets it use, which
            `regard shortlist` made; its probabilities are shared out among that.

    Raises:
        RunFolderError: a folder is not there or damaged, its parts do not belong together, or
            the runs of an ensemble have different target vocabularies; or the run has no
            shortlist that is its own.
        RegardError: there is no such device, engine or dtype; or the engine must translate and
            can't (`EngineError`); or a shortlist is asked of an ensemble.
    """
    check_names(engine, dtype)
    require(shortlist, bool, "shortlist", "True or False")
    given: Sequence[RunPath] = (
        [path]
        if isinstance(path, (str, os.PathLike))
        else items_of(path, "path", "a run folder, or a list of some")
    )
    paths = [path_of(each, "path") for each in given]
    if not paths:
        raise RegardError("expected one run folder or more, got none", where="load")
    place = Place(wanted_device(device, engine, paths), threads).check()
    runs = [open_run(one, place) for one in paths]
    require_same_target(runs)
    allowed = _shortlist(runs) if shortlist else None
    chosen = choose_engine(runs, engine=engine, dtype=dtype, threads=place.threads)
    if chosen.engine is None:
        for run in runs:
            run.held.make()
    return Translator(runs, chosen, allowed)


class Translator:
    """A trained model, or an ensemble, and all it takes to translate text; made by `load`.

    `decoding` says how it searches where a call says nothing else; it is the recipe's, and may
    be replaced.
    """

    def __init__(
        self,
        runs: Sequence[OpenedRun],
        chosen: Chosen | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        self._runs = tuple(runs)
        self._shortlist = shortlist
        self._chosen = chosen or Chosen()
        self.decoding: DecodingConfig = runs[0].recipe.decoding

    @property
    def model(self) -> Transformer:
        """The model, a plain `torch.nn.Module`; the first of an ensemble.

        Where the engine translates, it is made when it is first asked for.
        """
        return self._runs[0].model

    @property
    def models(self) -> tuple[Transformer, ...]:
        """All models; one, if it is no ensemble."""
        return tuple(run.model for run in self._runs)

    @property
    def engine(self) -> str:
        """Who searches and scores: "torch", or the engine with its dtype and instructions."""
        return str(self._chosen)

    @property
    def torch_serves(self) -> str:
        """What of the model keeps the engine from translating, so that PyTorch does it.

        It is empty where the engine does it, where PyTorch was asked for, and where there is no
        engine.
        """
        return self._chosen.reason

    @property
    def tokenizers(self) -> Tokenizers:
        """The vocabularies of source and target; the first's of an ensemble."""
        return self._runs[0].tokenizers

    @property
    def recipe(self) -> Recipe:
        """What made the model; the first of an ensemble."""
        return self._runs[0].recipe

    @property
    def trained_length(self) -> int:
        """The most source tokens that every model was trained on; what is longer is cut."""
        return min(run.recipe.data.max_tokens for run in self._runs)

    # A str is a sequence of strings too, but nobody wants it translated letter by letter.
    @overload
    def translate(  # type: ignore[overload-overlap]
        self, lines: str, **options: Unpack[DecodingOptions]
    ) -> str: ...

    @overload
    def translate(self, lines: Iterable[str], **options: Unpack[DecodingOptions]) -> list[str]: ...

    def translate(
        self, lines: str | Iterable[str], **options: Unpack[DecodingOptions]
    ) -> str | list[str]:
        """Translate strings, in order; a single string gives a single string.

        A string gives one line, whatever it holds: a line break inside it is read as a space.
        A blank string gives an empty one. A string longer than the model was trained on is
        translated in pieces.

        Args:
            lines: what to translate.
            options: of `DecodingConfig`, in place of those in `decoding`.

        Raises:
            RegardError: an option is unknown, has a bad value, or none that the method looks at.
            DataError: a string can't be encoded in UTF-8, or is no string; says which.
            ModelError: the model's output is NaN.
        """
        if isinstance(lines, str):
            return self.translations([lines], **options)[0].text
        return [translation.text for translation in self.translations(lines, **options)]

    def translations(
        self,
        lines: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        alignments: bool = False,
        attention: bool = False,
        first_line: int = 1,
        warn: Callable[[str], None] | None = None,
        **options: Unpack[DecodingOptions],
    ) -> list[Translation]:
        """As `translate`, with all there is to know: tokens, scores, the n best, alignments.

        Args:
            lines: what to translate.
            prefixes: for each line, what its translation must begin with; "" leaves it free.
            alignments: link the words of source and translation.
            attention: keep what each target token drew from each source token.
            first_line: the number of the first line, for warnings.
            warn: is told of a line that is cut into pieces.
            options: of `DecodingConfig`, in place of those in `decoding`.

        Raises:
            As `translate`; and DataError if there are not as many prefixes as lines.
        """
        config = self._config(options)
        require_teller(first_line, "first_line", warn)
        texts = [text.replace("\n", " ") for text in checked_strings(lines, "lines")]
        if prefixes is not None:
            prefixes = checked_strings(prefixes, "prefixes")
            if len(prefixes) != len(texts):
                given = counted(len(prefixes), "prefix")
                raise DataError(f"got {counted(len(texts), 'line')} and {given}")
        if engine := self._searcher():
            return translate_by(
                engine,
                self.tokenizers.source,
                self.tokenizers.target,
                texts,
                config,
                trained_length=self.trained_length,
                positions=most_positions([self.recipe.model]),
                prefixes=prefixes,
                alignments=alignments,
                attention=attention,
                first_line=first_line,
                warn=warn,
            )
        load_torch("regard.decoding.translate")
        from regard.decoding.translate import translate

        return translate(
            self.models,
            [run.tokenizers.source for run in self._runs],
            self.tokenizers.target,
            texts,
            config,
            trained_length=self.trained_length,
            prefixes=prefixes,
            alignments=alignments,
            attention=attention,
            first_line=first_line,
            warn=warn,
            shortlist=self._shortlist,
        )

    def score(self, pairs: Iterable[tuple[str, str]]) -> list[PairScore]:
        """How likely each target is, given its source.

        ```python
        translator = regard.load("runs/ende")
        for score in translator.score([("Hello", "Hallo"), ("Hello", "Danke")]):
            print(score.log_prob, score.tokens)
        ```

        A side may have 4,096 tokens, or `data.max_tokens` if those are more, and no more than
        the model has positions for.

        Raises:
            DataError: a string can't be encoded in UTF-8, or a pair is too long; says which.
        """
        given = _checked_pairs(pairs)
        source, target = self.tokenizers.source, self.tokenizers.target
        if self._chosen.engine is not None:
            scorer = EngineScorer(self._chosen.engine, target)
            return score_by(scorer, source, target, given, limits=self.score_limits)
        load_torch("regard.decoding.score")
        from regard.decoding.score import score_pairs

        sources = [run.tokenizers.source for run in self._runs]
        return score_pairs(self.models, sources, target, given, limits=self.score_limits)

    @property
    def score_limits(self) -> Limits:
        """How long the sides of a pair to score may be."""
        return Limits.of(
            [run.recipe.model for run in self._runs],
            [run.tokenizers.source for run in self._runs],
            trained_length=self.trained_length,
        )

    def lengths(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
        """The tokens of source and target of each pair; of an ensemble's sources the most.

        Raises:
            DataError: these are no pairs of strings; says which is none.
        """
        given = _checked_pairs(pairs)
        texts = [source for source, _ in given]
        each = [run.tokenizers.source.encode_batch(texts) for run in self._runs]
        sources = [max(map(len, versions)) for versions in zip(*each, strict=True)]
        targets = self.tokenizers.target.encode_batch([target for _, target in given])
        return list(zip(sources, map(len, targets), strict=True))

    def judge(self, pairs: Iterable[tuple[str, str]]) -> Judgement:
        """BLEU, chrF and perplexity on sources and their references, as validation finds them.

        Raises:
            DataError: there are no pairs, or a string can't be encoded in UTF-8; says which.
        """
        given = _checked_pairs(pairs)
        sources = [run.tokenizers.source for run in self._runs]
        target = self.tokenizers.target
        if self._chosen.engine is not None or self._shortlist is not None:
            from regard.evaluation.judgement import judge_by

            return judge_by(
                self.translations,
                self.score,
                sources,
                target,
                given,
                trained_length=self.trained_length,
            )
        load_torch("regard.evaluation.judge")
        from regard.evaluation.judge import judge

        return judge(
            self.models, sources, target, given, self.decoding, trained_length=self.trained_length
        )

    def _searcher(self) -> EngineSearch | None:
        """The engine, if there is one; None leaves it to PyTorch."""
        engine = self._chosen.engine
        return None if engine is None else EngineSearch(engine, self._runs[0], self._shortlist)

    def _config(self, options: DecodingOptions) -> DecodingConfig:
        refuse_unknown(options, DecodingConfig.model_fields, "translate")
        if not options:
            return self.decoding
        asked = plain_numbers(options)
        settings = changed_settings(self.decoding.model_dump(), asked)
        if problem := without_effect(settings["method"], asked):
            raise RegardError(problem, where="translate")
        merged = {**self.recipe.model_dump(), "decoding": settings}
        try:
            return Recipe.model_validate(merged).decoding
        except ValidationError as error:
            raise explain(error, Recipe, source="translate", changed=()) from None


def _shortlist(runs: Sequence[OpenedRun]) -> Shortlist:
    """That of the run."""
    if len(runs) > 1:
        raise RegardError(
            "a shortlist is one run's, and this is an ensemble of several",
            where="shortlist",
            hint="Translate without it, or with one run.",
        )
    return read_shortlist(RunFolder.open(runs[0].path, model=False), runs[0].tokenizers)


def _checked_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs, each of two strings that UTF-8 can hold."""
    texts = listed(pairs, "pairs", "a list of pairs of strings")
    for place, pair in enumerate(texts):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise DataError("expected a source and a target", where=f"pairs[{place}]")
    both = cast(list[tuple[str, str]], texts)
    sources = checked_strings([source for source, _ in both], "sources")
    targets = checked_strings([target for _, target in both], "targets")
    return list(zip(sources, targets, strict=True))
