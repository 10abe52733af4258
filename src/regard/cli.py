"""The command line: parses, calls and prints; the work is done in the rooms that it calls."""

import glob
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Group, Parameter
from cyclopts.completion import CompletionContext
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt

import regard
from regard.exits import run_guarded

# Only what a command needs is imported, inside the command: --help must not wait for torch.

app = App(
    name="regard",
    help="Trains a Transformer on two files of raw text, and translates with it.",
    version=regard.__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
    suppress_keyboard_interrupt=False,
    result_action="return_none",
)
app.register_install_completion_command(
    help="Install completion for this shell (bash, zsh, fish), and say where.",
    result_action="return_none",
)
recipe_app = App(name="recipe", help="List the recipes, or write one out.", sort_key=9)
app.command(recipe_app)

_DATA = Group("Data", sort_key=1)
_SEARCH = Group("Search", sort_key=2)
_FILES = Group("Files", sort_key=3)


def _complete_recipe(context: CompletionContext) -> list[str]:
    """The recipes that there are, and the files and folders that the word may become."""
    from regard.recipes.load import preset_names

    head, slash, tail = context.incomplete.rpartition("/")
    folder = Path(head + slash or ".")
    paths = sorted(folder.glob(f"{glob.escape(tail)}*")) if folder.is_dir() else []
    names = [f"{head}{slash}{path.name}{'/' * path.is_dir()}" for path in paths]
    return preset_names() + [name for name in names if tail or not name.startswith(".")]


def _complete_key(_context: CompletionContext) -> list[str]:
    from regard.recipes.keys import recipe_keys

    return [f"{key}=" for key in recipe_keys()]


def _complete_decoding_key(context: CompletionContext) -> list[str]:
    return [key for key in _complete_key(context) if key.startswith("decoding.")]


_Name = Annotated[str, Parameter(completer=_complete_recipe)]
_Set = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        completer=_complete_key,
        metavar="KEY=VALUE",
        help="Change a key of the recipe, such as training.max_steps=100. May be repeated.",
    ),
]
_SetDecoding = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        completer=_complete_decoding_key,
        metavar="KEY=VALUE",
        help="Change a decoding key, such as decoding.coverage=0.2. May be repeated.",
    ),
]
_Files = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, group=_DATA)]
_DataFile = Annotated[Path | None, Parameter(group=_DATA)]
_Threads = Annotated[
    PositiveInt | None, Parameter(help="CPU threads to use. Default: all cores usable.")
]
_Json = Annotated[bool, Parameter(name="--json", help="Print JSON.")]


def _overrides(options: dict[str, object], changes: Sequence[str]) -> list[str]:
    """The options that stand for recipe keys as `key=value`, then what `--set` says."""
    from regard.recipes.write import toml_value

    given = [(key, value) for key, value in options.items() if value is not None]
    return [f"{key}={toml_value(value)}" for key, value in given] + list(changes)


@app.command(sort_key=1)
def demo(
    *,
    out: Path = Path("runs/demo"),
    minutes: PositiveFloat = 8.0,
    set_: _Set = (),
) -> None:
    """Train, evaluate and try out a translator on the corpus that comes with regard.

    Nothing is downloaded. Takes under ten minutes on two cores.

    Args:
        out: The run folder to write. Default: runs/demo.
        minutes: How long to train at most. Default: 8.
    """
    from regard.signals import load_torch

    load_torch()
    from regard.demo import run_demo

    print(run_demo(out, minutes=minutes, overrides=list(set_)))


@app.command(sort_key=2)
def train(
    recipe: _Name,
    /,
    *,
    source: _Files = (),
    target: _Files = (),
    tsv: _Files = (),
    valid_source: _DataFile = None,
    valid_target: _DataFile = None,
    valid_tsv: _DataFile = None,
    out: Path | None = None,
    set_: _Set = (),
    resume: bool = False,
    init: Path | None = None,
    dry_run: bool = False,
) -> None:
    """Train a model as a recipe says.

    Text is two line-aligned files, or a TSV file, plain or .gz, .xz or .zst.
    Without validation files some of the training pairs are held out.
    A data option stands for the recipe key of that name (--source: data.source).

    Args:
        recipe: A recipe's name (see regard recipe list), a TOML file, or a run folder.
        source: Source text. May be repeated, and may name several files.
        target: Target text, line by line the translation of the source.
        tsv: Both sides in one file, a tab between them. Instead of source and target.
        valid_source: Source text to validate with.
        valid_target: Target text to validate with.
        valid_tsv: Both sides to validate with.
        out: The run folder to write. Default: runs/ and the recipe's name.
        resume: Go on with the run folder given, exactly where it stopped.
        init: Start from this run folder's weights and vocabulary (fine-tuning).
        dry_run: Try out every part for a moment, and predict memory and time.
    """
    from regard.recipes.load import load_recipe
    from regard.signals import load_torch

    training = {"source": source, "target": target, "tsv": tsv}
    validation = {"source": valid_source, "target": valid_target, "tsv": valid_tsv}
    data: dict[str, object] = {
        **{f"data.{key}": [str(path) for path in paths] or None for key, paths in training.items()},
        **{f"data.valid_{key}": path and str(path) for key, path in validation.items()},
    }
    overrides = _overrides(data, set_)
    if resume:
        _refuse_with_resume(out=out, init=init, dry_run=dry_run)
        load_torch()
        from regard.recipes.run import resume as resume_run

        resume_run(Path(recipe), overrides)
        return
    if init:
        _refuse_with_init(set_)
    loaded = load_recipe(recipe, overrides)  # first, for a mistake must not wait for torch
    load_torch()
    from regard.recipes.run import train as train_run

    out = out or Path("runs") / Path(recipe).resolve().name.removesuffix(".toml")
    train_run(loaded, out, init=init, dry_run=dry_run)


def _refuse_with_init(changes: Sequence[str]) -> None:
    from regard.errors import RegardError

    for change in changes:
        key = change.partition("=")[0].strip()
        if key.partition(".")[0] == "vocabulary" and key != "vocabulary.bpe_dropout":
            raise RegardError(
                "has no effect with --init: the vocabulary comes from that run",
                where=f"--set {key}",
            )


def _refuse_with_resume(**options: object) -> None:
    from regard.errors import RegardError

    for name, value in options.items():
        if value:
            raise RegardError(
                "cannot go with --resume",
                where=f"--{name.replace('_', '-')}",
                hint="regard train RUN --resume goes on in the run folder RUN as it was.",
            )


_Ensemble = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, group=_FILES)]
_Search = Parameter(group=_SEARCH)
_File = Annotated[Path | None, Parameter(group=_FILES)]


@app.command(sort_key=3)
def translate(
    run: Path,
    /,
    *,
    ensemble: _Ensemble = (),
    input_: Annotated[Path | None, Parameter(name="--input", group=_FILES)] = None,
    output: _File = None,
    report: _File = None,
    alignments: _File = None,
    prefix: Annotated[str | None, Parameter(group=_SEARCH, allow_leading_hyphen=True)] = None,
    prefix_file: _File = None,
    beam: Annotated[PositiveInt | None, _Search] = None,
    alpha: Annotated[float | None, _Search] = None,
    n_best: Annotated[PositiveInt | None, _Search] = None,
    sample: Annotated[bool, _Search] = False,
    temperature: Annotated[float | None, _Search] = None,
    top_k: Annotated[NonNegativeInt | None, _Search] = None,
    top_p: Annotated[float | None, _Search] = None,
    min_p: Annotated[float | None, _Search] = None,
    seed: Annotated[int | None, _Search] = None,
    no_repeat_ngram: Annotated[NonNegativeInt | None, _Search] = None,
    min_tokens: Annotated[NonNegativeInt | None, _Search] = None,
    max_tokens: Annotated[NonNegativeInt | None, _Search] = None,
    threads: _Threads = None,
    set_: _SetDecoding = (),
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
        overrides=_overrides(options, set_),
        input=input_,
        output=output,
        prefix=prefix,
        prefix_file=prefix_file,
        report=report,
        alignments=alignments,
        threads=threads,
    )


@app.command(sort_key=5)
def score(
    run: Path,
    /,
    *,
    source: Path,
    target: Path,
    ensemble: _Ensemble = (),
    threads: _Threads = None,
    json: _Json = False,
) -> None:
    """Say how likely given translations are: log-probability a line, and perplexity.

    Prints a line for each pair: its log-probability (natural logarithm), a tab, its tokens.
    The perplexity of all goes to standard error; --json prints everything in one object.

    Args:
        run: The run folder whose model judges.
        source: Source text.
        target: Target text, line by line.
        ensemble: More run folders, with the same vocabulary, to average with the first.
    """
    from regard.serving import commands

    commands.score([run, *ensemble], source=source, target=target, threads=threads, json=json)


@app.command(sort_key=4)
def evaluate(
    run: Path,
    /,
    *,
    source: Path,
    reference: Path,
    ensemble: _Ensemble = (),
    threads: _Threads = None,
    set_: _SetDecoding = (),
    json: _Json = False,
) -> None:
    """Translate a test set and compare it with a reference: BLEU and chrF with signatures.

    Args:
        run: The run folder to evaluate.
        source: Source text.
        reference: Reference translation, line by line.
        ensemble: More run folders, with the same vocabulary, to average with the first.
    """
    from regard.serving import commands

    commands.evaluate(
        [run, *ensemble],
        source=source,
        reference=reference,
        overrides=list(set_),
        threads=threads,
        json=json,
    )


@app.command(sort_key=6)
def average(
    run: Path,
    /,
    *,
    last: PositiveInt | None = None,
    steps: Annotated[tuple[PositiveInt, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
    undo: bool = False,
) -> None:
    """Average the weights of several checkpoints of a run into the model to translate with.

    The model that training wrote is kept beside it, as model.trained.safetensors.

    Args:
        run: The run folder whose checkpoints are averaged.
        last: Average the last so many checkpoints. Default: 5.
        steps: Average the checkpoints of these steps instead.
        out: A run folder to write, which leaves the run as it is.
        undo: Bring back the model that training wrote.
    """
    from regard.serving import commands

    commands.average(run, last=last, steps=list(steps), out=out, undo=undo)


@app.command(sort_key=7)
def info(name: _Name, /, *, set_: _Set = (), json: _Json = False) -> None:
    """Show what a model is made of: its parts, shapes, parameters, and where it is from.

    Args:
        name: A recipe's name, a TOML file, or a run folder.
    """
    from regard.recipes.describe import describe, format_description, to_json

    description = describe(name, list(set_))
    print(to_json(description) if json else format_description(description))


@app.command(sort_key=8)
def doctor(*, quick: bool = False, json: _Json = False) -> None:
    """Show versions, devices, threads, speed and what is missing, to paste into a report.

    Args:
        quick: Leave out the measurement of speed, which takes some seconds.
    """
    from regard.doctor import examine, format_findings, to_json

    findings = examine(measure=not quick)
    print(to_json(findings) if json else format_findings(findings))


@recipe_app.command(name="list")
def list_recipes() -> None:
    """List the recipes that come with regard."""
    from regard.recipes.load import load_recipe, preset_names

    for name in preset_names():
        print(f"{name:8}{load_recipe(name).description}")


@recipe_app.command
def show(name: _Name, /, *, set_: _Set = ()) -> None:
    """Write a recipe out with every value in it, as a TOML file to start from.

    Args:
        name: A recipe's name, a TOML file, or a run folder.
    """
    from regard.recipes.load import load_recipe
    from regard.recipes.write import format_recipe

    print(format_recipe(load_recipe(name, list(set_))), end="")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, that of the process if none is given, and return its exit code."""
    tokens = sys.argv[1:] if arguments is None else list(arguments)
    return run_guarded(lambda: app(tokens, print_error=False, exit_on_error=False))
