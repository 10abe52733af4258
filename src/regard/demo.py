"""`regard demo`: the main job from end to end on the corpus that comes with the package."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from shlex import quote

from regard.corpora import HOME_ASSISTANT_EN_DE
from regard.counts import counted
from regard.durations import duration
from regard.errors import command
from regard.evaluation.judgement import Judgement
from regard.recipes.assembly import assemble
from regard.recipes.load import load_recipe_of
from regard.recipes.names import typed
from regard.recipes.recipe import Recipe
from regard.recipes.run import require_beginning, train_in
from regard.recipes.summary import write_run_report
from regard.recipes.trial import Trial, try_steps
from regard.recipes.write import toml_value
from regard.serving.translator import load
from regard.text.lines import read_lines, read_pairs, write_line, writing
from regard.text.split import place
from regard.training.interrupts import Interrupts
from regard.training.metrics import MetricsLog
from regard.training.progress import Reporter, make_reporter
from regard.weights.aside import folder_aside
from regard.weights.layout import PREPARED_TEXT
from regard.weights.run_folder import RunFolder

TEXT = "text"
SPLITS = ("train", "valid", "test")
SIDES = ("en", "de")
# Of all texts: 1 % to validate, 3 % to test.
_VALID, _TEST = 0.01, 0.04
_TRIAL_STEPS = 24
_VALIDATIONS = 5
# Of the time, what is left for validations and for a machine that is slower later on.
_RESERVE = 0.06
_SHOWN = 12


def run_demo(
    out: Path,
    *,
    minutes: float,
    overrides: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> str:
    """Train, evaluate and show an English-German translator; return its result as text.

    The machine's speed is measured for some seconds first, and so many steps are planned as fit
    into `minutes`; an own `training.max_steps` among the overrides is taken as it is. What was
    planned is kept in the run's recipe.

    Args:
        out: the run folder to make; the text, split in three, is written to `text/` in it.
        minutes: how long training may take, validations included.
        overrides: `key=value` changes of the recipe.
        reporter: shows what happens; on stderr by default.

    Raises:
        As `regard.recipes.run.train`.
    """
    reporter = reporter or make_reporter()
    started = time.perf_counter()
    recipe = load_recipe_of(Recipe, "demo", [*_data_keys(out / TEXT), *overrides])
    require_beginning(recipe)
    asked = [override.partition("=")[0].strip() for override in overrides]
    with Interrupts() as interrupts, RunFolder.create(out) as folder:
        counts = write_splits(out / TEXT)
        reporter.say(_introduction(counts, out, minutes))
        with folder_aside(folder.path / "trial") as aside:
            assembly = assemble(recipe, folder.path / PREPARED_TEXT, say=reporter.say)
            trial = try_steps(
                assembly,
                aside / "run",
                steps=_TRIAL_STEPS,
                interrupts=interrupts,
            )
        steps = recipe.training.max_steps
        if "training.max_steps" not in asked:
            steps = _steps_that_fit(minutes, trial)
        planned = [f"{key}={value}" for key, value in _plan(recipe, steps).items()]
        recipe = load_recipe_of(Recipe, "demo", [*_data_keys(out / TEXT), *planned, *overrides])
        reporter.say(_announcement(recipe, trial))
        assembly = assemble(recipe, folder.path / PREPARED_TEXT, say=lambda _: None)
        train_in(folder, assembly, reporter=reporter, interrupts=interrupts)
        pairs, judgement = _evaluate(folder, recipe, reporter)
    return _farewell(out, pairs, judgement, time.perf_counter() - started)


def demo_commands(run: Path) -> list[str]:
    """What to type after the demo; each works as it stands."""
    source, reference = (run / TEXT / f"test.{side}" for side in SIDES)
    output = run / "test.out.de"
    return [
        f"echo 'Turn on the light in the kitchen' | {command('translate', run)}",
        f"{command('translate', run)} < {quote(str(source))} > {quote(str(output))}",
        command("evaluate", run, "--source", source, "--reference", reference),
        command("score", run, "--source", source, "--target", reference),
        command("info", typed(run)),
    ]


def _data_keys(text: Path) -> list[str]:
    """The recipe keys that name the demo's text."""
    files = {
        "source": [str(text / "train.en")],
        "target": [str(text / "train.de")],
        "valid_source": str(text / "valid.en"),
        "valid_target": str(text / "valid.de"),
    }
    return [f"data.{key}={toml_value(value)}" for key, value in files.items()]


def write_splits(folder: Path) -> dict[str, int]:
    """Write the corpus as line-aligned files; near twins of a source stay in one split."""
    folder.mkdir(exist_ok=True)
    counts = dict.fromkeys(SPLITS, 0)
    with writing(folder), ExitStack() as stack:
        files = {
            (split, side): stack.enter_context((folder / f"{split}.{side}").open("wb"))
            for split in SPLITS
            for side in SIDES
        }
        for split, source, target in _split_pairs():
            write_line(files[split, "en"], source)
            write_line(files[split, "de"], target)
            counts[split] += 1
    return counts


def _split_pairs() -> Iterator[tuple[str, str, str]]:
    for source, target in read_pairs(HOME_ASSISTANT_EN_DE):
        where = place(source, salt="demo")
        split = "valid" if where < _VALID else "test" if where < _TEST else "train"
        yield split, source, target


def _steps_that_fit(minutes: float, trial: Trial) -> int:
    return max(10, int(60 * minutes * (1 - _RESERVE) / trial.step_seconds))


def _plan(recipe: Recipe, steps: int) -> dict[str, int]:
    """The keys for so many steps: checkpoints, validations and warm-up in proportion."""
    return {
        "training.max_steps": steps,
        "training.checkpoint_every": max(1, -(-steps // _VALIDATIONS)),
        "training.schedule.warmup_steps": min(recipe.training.schedule.warmup_steps, steps // 5),
    }


def _introduction(counts: dict[str, int], out: Path, minutes: float) -> str:
    return "\n".join(
        [
            "regard demo: from two text files to a translator, English to German.",
            "The text: interface strings of Home Assistant (Apache-2.0), "
            + ", ".join(f"{counted(count, 'pair')} to {split}" for split, count in counts.items())
            + ".",
            f"What happens now: a vocabulary is learned (seconds), speed is measured (seconds), "
            f"a model trains (up to {counted(minutes, 'minute')}), and is tested (under a minute).",
            f"Everything goes to {out}. Ctrl-C saves and stops.",
            "",
        ]
    )


def _announcement(recipe: Recipe, trial: Trial) -> str:
    steps = recipe.training.max_steps
    return (
        f"plan: {counted(steps, 'step')} of {trial.step_seconds:.2f} s, about "
        f"{duration(steps * trial.step_seconds / (1 - _RESERVE))} with validations"
    )


def _evaluate(
    folder: RunFolder, recipe: Recipe, reporter: Reporter
) -> tuple[list[tuple[str, str]], Judgement]:
    """Translate the test split; add its scores to the metrics and to the report."""
    files = (folder.path / TEXT / f"test.{side}" for side in SIDES)
    pairs = list(zip(*map(read_lines, files), strict=True))
    reporter.say(f"testing on {counted(len(pairs), 'pair')} never seen before")
    judgement = load(folder.path).judge(pairs)
    log = MetricsLog(folder.metrics_path)
    log.write({"event": "test", "step": recipe.training.max_steps, **judgement.scores()})
    log.sync()
    log.close()
    resolved = recipe.model_copy(update={"model": recipe.model.resolved()})
    write_run_report(folder, resolved, commands=demo_commands(folder.path), say=reporter.say)
    return pairs, judgement


def _farewell(
    out: Path, pairs: Sequence[tuple[str, str]], judgement: Judgement, seconds: float
) -> str:
    said = [translation.text for translation in judgement.translations]
    exact = sum(text == reference for text, (_, reference) in zip(said, pairs, strict=True))
    every = max(1, len(pairs) // _SHOWN)
    lines = []
    for (source, reference), text in list(zip(pairs, said, strict=True))[every // 2 :: every]:
        lines.append(f"  {source}")
        if text == reference:
            lines.append(f"    {text}  (as the reference)")
        else:
            lines += [f"    {text}", f"    reference: {reference}"]
    return "\n".join(
        [
            "",
            *lines,
            "",
            f"On {counted(len(pairs), 'string')} that it never saw:",
            f"  BLEU {judgement.bleu.value:.1f}  {judgement.bleu.signature}",
            f"  chrF {judgement.chrf.value:.1f}  {judgement.chrf.signature}",
            f"  {exact:,} of them ({exact / len(pairs):.0%}) are the reference to the letter.",
            f"In all {duration(seconds)}. Report: {out / 'report.html'}",
            "",
            "Try it:",
            *(f"  {command}" for command in demo_commands(out)),
            "With your own text, in files like these two:",
            "  "
            + command(
                "train",
                "small",
                *("--source", out / TEXT / "train.en", "--target", out / TEXT / "train.de"),
                *("--out", "runs/mine"),
            ),
        ]
    )
