"""Training from a recipe into a run folder, and going on with one."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import assert_never

from regard.arguments import path_of, require
from regard.counts import counted
from regard.durations import duration
from regard.errors import RegardError, RunFolderError, command
from regard.evaluation.figures import FIGURES
from regard.recipes.adapting import require_start
from regard.recipes.assembled import Assembly
from regard.recipes.assembly import assemble
from regard.recipes.environment import require_environment
from regard.recipes.finetune import planned
from regard.recipes.labelled import LabelAssembly
from regard.recipes.load import load_recipe
from regard.recipes.memory import require_memory
from regard.recipes.names import typed
from regard.recipes.recipe import AnyRecipe, DecoderRecipe, EncoderRecipe, Recipe
from regard.recipes.start import borrows, require_same_shape
from regard.recipes.summary import write_run_report
from regard.recipes.transfer import parts_of_runs
from regard.recipes.trial import dry_run as try_recipe
from regard.recipes.write import format_recipe, require_recipe
from regard.training.devices import choose_device
from regard.training.interrupts import Interrupts
from regard.training.processes import ALONE, Processes, joined
from regard.training.progress import Reporter, SilentReporter, make_reporter
from regard.training.result import TrainingResult
from regard.weights.checkpoints import checkpoint_steps, latest_checkpoint
from regard.weights.layout import PREPARED_TEXT, REPORT
from regard.weights.manifest import read_manifest
from regard.weights.run_folder import RunFolder

# What a run may go on with changed; the rest was settled when it began.
_CHANGEABLE = ("training", "decoding", "generation", "embedding", "data", "labels")


def train(
    recipe: AnyRecipe,
    out: str | Path,
    *,
    init: str | Path | None = None,
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> TrainingResult | None:
    """Train a model as a recipe says, into a new run folder.

    Where torchrun started this process with others, they train it together.

    ```python
    import regard

    recipe = regard.load_recipe("tiny", ['data.tsv=["pairs.tsv"]', "training.max_steps=20"])
    regard.train(recipe, "runs/first")
    print(regard.load("runs/first").translate(["Hello"]))
    ```

    Args:
        recipe: what to train.
        out: the run folder to make.
        init: a run whose weights and vocabulary are the start (fine-tuning).
        dry_run: try every part for a moment, say what the run would take, and write nothing.
        reporter: shows what happens; on stderr by default.

    Returns:
        How the training ended; None after a dry run.

    Raises:
        RecipeError, DataError, RunFolderError: something is wrong with what was given.
        DivergenceError: a loss or a gradient was not finite.
        Interrupted: Ctrl-C, SIGTERM or SIGHUP; everything is saved.
    """
    require_recipe(recipe)
    require(reporter, (Reporter, NoneType), "reporter", "a Reporter or None")
    path_of(out, "out")
    if init is not None:
        recipe = recipe.model_copy(update={"init": str(path_of(init, "init"))})
    require_beginning(recipe)
    with Interrupts() as interrupts, joined() as processes:
        reporter = _reporter(processes, reporter)
        if dry_run:
            _require_alone(processes)
            try_recipe(recipe, reporter=reporter, interrupts=interrupts)
            return None
        with _opened(processes, out, lambda: RunFolder.create(out)) as folder:
            assembly = processes.after_main(
                lambda: assemble(recipe, folder.path / PREPARED_TEXT, say=reporter.say)
            )
            result = train_in(
                folder, assembly, reporter=reporter, interrupts=interrupts, processes=processes
            )
            reporter.say(_outcome(folder.path, recipe, result))
            return result


def finetune(
    recipe: EncoderRecipe,
    out: str | Path,
    *,
    epochs: int | float | None = None,
    given: Collection[str] = (),
    reporter: Reporter | None = None,
) -> TrainingResult:
    """Train a classifier as a recipe of `classifier_recipe` says, into a new run folder.

    Args:
        recipe: what to train.
        out: the run folder to make.
        epochs: how often each text is seen; steps, warm-up and checkpoints are planned for that.
            None for all as the recipe says.
        given: dotted keys of the recipe that the plan leaves alone; with `training.max_steps`
            among them, it is for so many steps.
        reporter: shows what happens; on stderr by default.

    Raises:
        As `train`.
    """
    require_beginning(recipe)
    with (
        Interrupts() as interrupts,
        joined() as processes,
        _opened(processes, out, lambda: RunFolder.create(out)) as folder,
    ):
        reporter = _reporter(processes, reporter)
        say = reporter.say
        assembly = processes.after_main(
            lambda: assemble(recipe, folder.path / PREPARED_TEXT, say=say)
        )
        if epochs is not None and isinstance(assembly, LabelAssembly):
            batches = assembly.batches().count(0)
            assembly = replace(assembly, recipe=planned(assembly.recipe, epochs, batches, given))
        result = train_in(
            folder, assembly, reporter=reporter, interrupts=interrupts, processes=processes
        )
        reporter.say(_outcome(folder.path, assembly.recipe, result))
        return result


def resume(
    run: str | Path, overrides: Sequence[str] = (), *, reporter: Reporter | None = None
) -> TrainingResult:
    """Go on with a run exactly where it stopped.

    Args:
        run: the run folder.
        overrides: `key=value` changes of how to train, decode, or find the text.
        reporter: shows what happens; on stderr by default.

    Raises:
        As `train`; and RegardError if the run has done more steps than are asked for.
    """
    require_environment()
    with (
        Interrupts() as interrupts,
        joined() as processes,
        _opened(processes, run, lambda: RunFolder.open(run, write=True, model=False)) as folder,
    ):
        reporter = _reporter(processes, reporter)
        say = reporter.say
        recipe = load_recipe(Path(run), overrides, only=_CHANGEABLE)
        started = bool(checkpoint_steps(folder.path))
        if not started and folder.has_model:
            folder.require_plain()
            raise RunFolderError(
                "the run has a model and no checkpoint to go on from",
                where=str(run),
                hint="Start a new run from its weights: "
                + command("train", typed(folder.path), "--init", folder.path, "--out", "RUN"),
            )
        # What is damaged is told when the training takes its state up, once.

        def trained_on() -> str | None:
            newest = latest_checkpoint(folder.path, lambda text: None) if started else None
            return newest.state()["data"].split()[0] if newest else None

        expected = processes.from_main(trained_on)
        assembly = processes.after_main(
            lambda: assemble(
                recipe,
                folder.path / PREPARED_TEXT,
                # A fine-tuned run has its vocabulary from elsewhere; it is its own by now.
                vocabularies=folder if borrows(recipe) and started else None,
                expected=expected,
                say=say,
            )
        )
        result = train_in(
            folder,
            assembly,
            reporter=reporter,
            interrupts=interrupts,
            processes=processes,
            resume=True,
        )
        reporter.say(_outcome(folder.path, recipe, result))
        return result


def require_beginning(recipe: AnyRecipe) -> None:
    """Refuse, before anything is made, what no text could set right.

    Raises:
        RegardError: this machine has no such device, or the environment asks for what is not there.
        RecipeError: there is nothing to adapt, the runs to start from are of another shape, or
            the machine can't hold the model.
        RunFolderError: a run to start from is not whole.
    """
    require_environment()
    choose_device(recipe.training.device)
    require_start(recipe)
    require_memory(recipe)
    if recipe.init:
        require_same_shape(RunFolder.open(recipe.init), recipe)
    if isinstance(recipe, Recipe):
        parts_of_runs(recipe)


def train_in(
    folder: RunFolder,
    assembly: Assembly,
    *,
    reporter: Reporter,
    interrupts: Interrupts,
    processes: Processes = ALONE,
    resume: bool = False,
) -> TrainingResult:
    """Train what is assembled into an open run folder, and write its report."""
    recipe, tokenizers = assembly.recipe, assembly.vocabularies
    trainer = assembly.trainer(
        folder,
        assembly.batches(),
        reporter=reporter,
        interrupts=interrupts,
        validator=assembly.validator(),
        processes=processes,
    )
    resolved = recipe.model_copy(update={"model": recipe.model.resolved()})
    fresh = not (resume and checkpoint_steps(folder.path))

    def write_what_made_it() -> None:
        # Only now: what refuses to begin must leave the run as it was.
        if fresh:
            folder.write_tokenizers(
                tokenizers.source.to_bytes(),
                None if tokenizers.joint else tokenizers.target.to_bytes(),
            )
        folder.write_recipe(format_recipe(resolved))

    result = trainer.run(resume=resume, on_start=write_what_made_it)
    interrupts.trained = folder.path
    if not processes.main:
        return result
    commands = next_commands(folder.path, recipe)
    try:
        write_run_report(folder, resolved, commands=commands, say=reporter.say)
    except RunFolderError as error:
        folder.require_there()
        reporter.say(f"the training is complete, but it has no report: {error}")
    return result


@contextmanager
def _opened(
    processes: Processes, path: str | Path, open_it: Callable[[], RunFolder]
) -> Iterator[RunFolder]:
    """The run folder, which the main process opens to write and the others only know."""

    def known() -> RunFolder:
        if processes.main:
            return open_it()
        return RunFolder(Path(path), read_manifest(Path(path)), None)

    with processes.after_main(known) as folder:
        yield folder


def _reporter(processes: Processes, reporter: Reporter | None) -> Reporter:
    """What shows what happens: in one process alone."""
    return reporter or make_reporter() if processes.main else SilentReporter()


def _require_alone(processes: Processes) -> None:
    if processes.count > 1:
        raise RegardError(
            "a dry run is done by one process",
            where="--dry-run",
            hint="Start it without torchrun.",
        )


def next_commands(run: Path, recipe: AnyRecipe) -> list[str]:
    """What to type after a training."""
    lines, name = "< in.txt >", typed(run)
    match recipe:
        case Recipe():
            uses = [
                f"{command('translate', name)} {lines} out.txt",
                command("evaluate", name, "--source", "test.source", "--reference", "test.target"),
            ]
        case DecoderRecipe():
            uses = [command("generate", name, "--prompt", "Once upon a time")]
        case EncoderRecipe() if recipe.classifies:
            uses = [f"{command('classify', name)} {lines} labels.txt"]
        case EncoderRecipe():
            uses = [
                command("fill", name, "The [MASK] is open."),
                f"{command('embed', name, '--out', 'vectors.npy')} < in.txt",
                command("finetune", name, "--labels", "train.tsv", "--out", "RUN"),
            ]
        case _ as never:
            assert_never(never)
    return [*uses, command("info", name)]


def _outcome(run: Path, recipe: AnyRecipe, result: TrainingResult) -> str:
    why = "no better for a while, stopped early" if result.reason == "patience" else "done"
    which = f"the model is that of step {result.model_step:,}"
    if result.best_value is not None:
        shown = FIGURES[recipe.training.best_metric].show(result.best_value)
        which += f", the best by {recipe.training.best_metric} ({shown})"
    report = run / REPORT
    return "\n".join(
        [
            f"{why}: {counted(result.step, 'step')} in {duration(result.seconds)}; {which}",
            f"run folder: {run}" + (f"    report: {report}" if report.is_file() else ""),
            "next:",
            *(f"  {command}" for command in next_commands(run, recipe)),
        ]
    )
