"""The commands that use an encoder-decoder: translate, evaluate, score."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from regard.cli.options import (
    FILES,
    SEARCH,
    Ensemble,
    File,
    Json,
    NonNegativeInt,
    PositiveInt,
    Search,
    SetDecoding,
    Threads,
    Whole,
    overrides_of,
)


def translate(
    run: Path,
    /,
    *,
    ensemble: Ensemble = (),
    input_: Annotated[Path | None, Parameter(name="--input", group=FILES)] = None,
    output: File = None,
    report: File = None,
    alignments: File = None,
    prefix: Annotated[str | None, Parameter(group=SEARCH, allow_leading_hyphen=True)] = None,
    prefix_file: File = None,
    beam: Annotated[PositiveInt | None, Search] = None,
    alpha: Annotated[float | None, Search] = None,
    n_best: Annotated[PositiveInt | None, Search] = None,
    sample: Annotated[bool, Search] = False,
    temperature: Annotated[float | None, Search] = None,
    top_k: Annotated[NonNegativeInt | None, Search] = None,
    top_p: Annotated[float | None, Search] = None,
    min_p: Annotated[float | None, Search] = None,
    seed: Annotated[Whole | None, Search] = None,
    no_repeat_ngram: Annotated[NonNegativeInt | None, Search] = None,
    min_tokens: Annotated[NonNegativeInt | None, Search] = None,
    max_tokens: Annotated[NonNegativeInt | None, Search] = None,
    engine: Literal["auto", "native", "torch"] = "auto",
    dtype: Literal["float32", "bfloat16", "int8", "int4"] | None = None,
    shortlist: bool = False,
    threads: Threads = None,
    set_: SetDecoding = (),
) -> None:
    """Translate lines of text from standard input to standard output.

    N lines in, N lines out, in order; a blank line stays blank. With --n-best above 1 there is
    a line for each hypothesis: the number of the input line, the score and the text, with tabs.
    A search option stands for the recipe key of that name (--beam: decoding.beam);
    what is not given is as in the run's recipe.

    Args:
        run: The run folder to translate with.
        ensemble: More run folders, with the same vocabulary, to average with the first.
        input_: Read from this file.
        output: Write to this file.
        report: Write one JSON line a translation: tokens, score, whether it ended by itself.
        alignments: Write hard alignments, one line a translation, in Pharaoh format.
        prefix: What every translation starts with.
        prefix_file: What each translation starts with: one line for each line of input.
        beam: Hypotheses kept at each step; 1 is greedy search.
        alpha: Length penalty: 0 none, more favours longer translations.
        n_best: Translations a line, best first, each after its line's number and its score.
        sample: Draw the translation at random from the model.
        temperature: Below 1 samples nearer to the most likely, above 1 farther.
        top_k: Sample among the k most likely tokens only; 0 is all.
        top_p: Sample among the most likely tokens that together have this probability.
        min_p: Sample among tokens at least this fraction as likely as the likeliest.
        seed: Seed of the sampling.
        no_repeat_ngram: Forbid a repeated run of so many tokens; 0 allows all.
        min_tokens: Shortest translation, in tokens.
        max_tokens: Longest translation, in tokens; 0 leaves it to the source's length.
        engine: Who searches: native, torch (PyTorch), or by itself native where it can.
        dtype: What the engine computes with: float32, or, less exact, bfloat16, int8, int4.
        shortlist: Use only the tokens that the run's shortlist lets a sentence use.
    """
    from regard.serving import commands

    options: dict[str, object] = {
        "decoding.method": "sample" if sample else None,
        "decoding.beam": beam,
        "decoding.alpha": alpha,
        "decoding.n_best": n_best,
        "decoding.temperature": temperature,
        "decoding.top_k": top_k,
        "decoding.top_p": top_p,
        "decoding.min_p": min_p,
        "decoding.seed": seed,
        "decoding.no_repeat_ngram": no_repeat_ngram,
        "decoding.min_tokens": min_tokens,
        "decoding.max_tokens": max_tokens,
    }
    commands.translate(
        [run, *ensemble],
        overrides=overrides_of(options, set_),
        input=input_,
        output=output,
        prefix=prefix,
        prefix_file=prefix_file,
        report=report,
        alignments=alignments,
        engine=engine,
        dtype=dtype,
        shortlist=shortlist,
        threads=threads,
    )


def evaluate(
    run: Path,
    /,
    *,
    source: Path,
    reference: Path,
    ensemble: Ensemble = (),
    engine: Literal["auto", "native", "torch"] = "auto",
    dtype: Literal["float32", "bfloat16", "int8", "int4"] | None = None,
    shortlist: bool = False,
    threads: Threads = None,
    set_: SetDecoding = (),
    json: Json = False,
) -> None:
    """Translate a test set and compare it with a reference: BLEU and chrF with signatures.

    Args:
        run: The run folder to evaluate.
        source: Source text.
        reference: Reference translation, line by line.
        ensemble: More run folders, with the same vocabulary, to average with the first.
        engine: Who computes: native, torch (PyTorch), or by itself native where it can.
        dtype: What the engine computes with: float32, or, less exact, bfloat16, int8, int4.
        shortlist: Use only the tokens that the run's shortlist lets a sentence use.
    """
    from regard.serving import commands

    commands.evaluate(
        [run, *ensemble],
        source=source,
        reference=reference,
        overrides=overrides_of({}, set_),
        engine=engine,
        dtype=dtype,
        shortlist=shortlist,
        threads=threads,
        json=json,
    )


def score(
    run: Path,
    /,
    *,
    source: Path,
    target: Path,
    ensemble: Ensemble = (),
    engine: Literal["auto", "native", "torch"] = "auto",
    dtype: Literal["float32", "bfloat16", "int8", "int4"] | None = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Say how likely given translations are: log-probability a line, and perplexity.

    Prints a line for each pair: its log-probability (natural logarithm), a tab, its tokens.
    The perplexity of all goes to standard error; --json prints everything in one object.

    Args:
        run: The run folder whose model judges.
        source: Source text.
        target: Target text, line by line.
        ensemble: More run folders, with the same vocabulary, to average with the first.
        engine: Who computes: native, torch (PyTorch), or by itself native where it can.
        dtype: What the engine computes with: float32, or, less exact, bfloat16, int8, int4.
    """
    from regard.serving import commands

    commands.score(
        [run, *ensemble],
        source=source,
        target=target,
        engine=engine,
        dtype=dtype,
        threads=threads,
        json=json,
    )
