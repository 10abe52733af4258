"""What the command line calls: checks what it was given, and only then waits for torch."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from regard.decoding.config import DecodingConfig
from regard.errors import RegardError
from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import Recipe
from regard.serving.outputs import open_output, refuse_same_file
from regard.serving.windows import open_input
from regard.signals import load, load_torch
from regard.streams import say
from regard.text.inputs import PairFile
from regard.text.lines import open_text, read_lines
from regard.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from regard.serving.translator import Translator

# A wrong path or option is refused at once: what imports torch is imported after the checks.
# ruff: noqa: PLC0415

_AVERAGED = 5


def translate(
    runs: Sequence[Path],
    *,
    overrides: Sequence[str] = (),
    input: Path | None = None,
    output: Path | None = None,
    prefix: str | None = None,
    prefix_file: Path | None = None,
    report: Path | None = None,
    alignments: Path | None = None,
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
    shortlist: bool = False,
) -> None:
    """Translate lines from a file or standard input to a file or standard output.

    Line N of the output is the translation of line N of the input. With `decoding.n_best` above
    1 it is one line a hypothesis instead: the number of the input line, the score and the text,
    a tab between them. On an open pipe a line is answered before the next is waited for.

    Args:
        runs: a run folder, or several to average.
        overrides: `decoding.key=value` changes to the first run's recipe.
        input: the file to read.
        output: the file to write; it appears when it is whole.
        prefix: what every translation begins with.
        prefix_file: a file with a prefix for each line, which may be empty.
        report: a file for a line of JSON for each line: its number, source, text, tokens, score,
            log_prob, whether it finished by itself; with n_best above 1 the hypotheses.
        alignments: a file for the word alignments, as `0-0 1-2`.
        threads: CPU threads to use.
        engine: who searches, as `regard.load` has it; where PyTorch must, it is said.
        dtype: what the engine computes with.
        shortlist: use only what the run's shortlist lets each sentence use.

    Raises:
        DataError: the input is not UTF-8 (the lines before it are answered), a file is missing,
            or there is not a prefix for each line.
        RegardError: as `regard.load`; or a file can't be written.
    """
    if prefix is not None and prefix_file is not None:
        raise RegardError(
            "cannot go with --prefix-file", where="--prefix", hint="Give one of the two."
        )
    refuse_same_file(
        {"--output": output, "--report": report, "--alignments": alignments},
        {"--input": input, "--prefix-file": prefix_file},
    )
    decoding = _check_runs(runs, overrides)
    prefixes = _prefixes(prefix, prefix_file)
    with ExitStack() as stack:
        source = stack.enter_context(open_input(input))
        text_file = stack.enter_context(open_output(output))
        report_file, alignments_file = (
            None if path is None else stack.enter_context(open_output(path))
            for path in (report, alignments)
        )
        load("regard.serving.answering")
        from regard.serving.answering import answer

        translator = _load(runs, threads, engine, dtype, shortlist)
        translator.decoding = decoding
        if reason := translator.torch_serves:
            say(f"note: PyTorch translates; the engine does not support {reason}")
        answered = answer(
            translator,
            source,
            text_file,
            report=report_file,
            alignments=alignments_file,
            prefixes=prefixes,
            prefix_file=str(prefix_file or ""),
            say=say,
        )
    if answered.cut:
        say(answered.warning)


def score(
    runs: Sequence[Path],
    *,
    source: Path,
    target: Path,
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
    json: bool = False,
) -> None:
    """Print how likely each target line is, given its source line.

    To standard output goes a line for each pair: the natural logarithm of the probability, a
    tab, the number of tokens (the end token counted); the perplexity of all goes to standard
    error. With `json`, one object holds it all, and goes to standard output. `engine` and `dtype`
    are as in `translate`.

    Raises:
        DataError: a file is missing, empty or not UTF-8, they differ in their line counts, or a
            line is too long to be scored.
        RegardError: as `regard.load`.
    """
    _check_runs(runs)
    pairs = list(PairFile(str(source), str(target)).pairs())
    with open_output(None) as writer:
        load("regard.serving.judging")
        from regard.serving.judging import score_and_write

        translator = _load(runs, threads, engine, dtype)
        if reason := translator.torch_serves:
            say(f"note: PyTorch scores; the engine does not support {reason}")
        names = (str(source), str(target))
        score_and_write(translator, pairs, writer, names=names, json=json, say=say)


def evaluate(
    runs: Sequence[Path],
    *,
    source: Path,
    reference: Path,
    overrides: Sequence[str] = (),
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
    shortlist: bool = False,
    json: bool = False,
) -> None:
    """Translate a test set as training's validation does, and print BLEU, chrF and perplexity.

    The perplexity is that of the references, per token, the end token counted; as in training,
    pairs with a side of more than `data.max_tokens` tokens have no part in it.

    Args:
        runs: a run folder, or several to average.
        source: the text to translate.
        reference: its translation, line by line.
        overrides: `decoding.key=value` changes to the first run's recipe.
        threads: CPU threads to use.
        engine: who searches and scores, as in `translate`.
        dtype: what the engine computes with.
        shortlist: use only what the run's shortlist lets each sentence use.
        json: print one JSON object.

    Raises:
        DataError: a file is missing, empty or not UTF-8, or they differ in their line counts.
        RegardError: as `regard.load`.
    """
    decoding = _check_runs(runs, overrides)
    pairs = list(PairFile(str(source), str(reference)).pairs())
    with open_output(None) as writer:
        load("regard.serving.judging")
        from regard.serving.judging import evaluate_and_write

        translator = _load(runs, threads, engine, dtype, shortlist)
        translator.decoding = decoding
        if reason := translator.torch_serves:
            say(f"note: PyTorch translates; the engine does not support {reason}")
        evaluate_and_write(translator, pairs, writer, json=json, say=say)


def average(
    run: Path,
    *,
    last: int | None = None,
    steps: Sequence[int] = (),
    out: Path | None = None,
    undo: bool = False,
) -> None:
    """Average checkpoints of a run into the model to use, and print its folder.

    Without `out` it becomes the run's own model, and the one that training wrote is kept beside
    it as model.trained.safetensors, from where `undo` brings it back.

    Args:
        run: the run folder.
        last: how many of the newest checkpoints; 5 if neither this nor `steps` is given.
        steps: the checkpoints of exactly these steps.
        out: a new run folder to write.
        undo: bring back the model that training wrote, instead.

    Raises:
        RunFolderError: there are not so many checkpoints, the model can't be written, or there
            is no average to undo.
    """
    if undo:
        _undo_average(run, last=last, steps=steps, out=out)
        return
    if last is not None and steps:
        raise RegardError("cannot go with --steps", where="--last", hint="Give one of the two.")
    if not steps and last is None:
        last = _AVERAGED
    with RunFolder.open(run, write=out is None, model=False) as folder:
        load_torch()
        from regard.weights.average import average_checkpoints

        taken = average_checkpoints(folder, last=last, steps=steps, out=out, log=say)
    say(f"averaged the checkpoints of these steps: {', '.join(f'{step:,}' for step in taken)}")
    with open_output(None) as writer:
        writer.write(str(out or run))


def _undo_average(run: Path, **options: object) -> None:
    for name, value in options.items():
        if value:
            raise RegardError(
                "cannot go with --undo", where=f"--{name}", hint="Give one of the two."
            )
    with RunFolder.open(run, write=True, model=False) as folder:
        load_torch()
        from regard.weights.average import restore_trained

        restore_trained(folder)
    say("the model is again the one that training wrote")
    with open_output(None) as writer:
        writer.write(str(run))


def _load(
    runs: Sequence[Path],
    threads: int | None,
    engine: str = "auto",
    dtype: str | None = None,
    shortlist: bool = False,
) -> "Translator":
    from regard.serving.translator import load

    return load(list(runs), threads=threads, engine=engine, dtype=dtype, shortlist=shortlist)


def _check_runs(runs: Sequence[Path], overrides: Sequence[str] = ()) -> DecodingConfig:
    """Look at the run folders and options as far as that goes without torch."""
    for run in runs:
        RunFolder.open(run, model=False)
        load_recipe_of(Recipe, run)
    return load_recipe_of(Recipe, runs[0], overrides, only=["decoding"]).decoding


def _prefixes(prefix: str | None, path: Path | None) -> Iterator[str] | None:
    if path is not None:
        open_text(path).close()
        return read_lines(path)
    return None if prefix is None else itertools.repeat(prefix)
