"""The commands that make a model: demo, train, finetune, average, merge."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.made import tell
from regard.cli.options import DATA, DataFile, Files, Minutes, Name, PositiveInt, Set, overrides_of


def demo(
    *,
    out: Path = Path("runs/demo"),
    minutes: Minutes = 8.0,
    set_: Set = (),
) -> None:
    """Train, evaluate and try out a translator on the corpus that comes with regard.

    Nothing is downloaded. Takes under ten minutes on two cores.

    Args:
        out: The run folder to write. Default: runs/demo.
        minutes: How long to train at most. Default: 8.
    """
    from regard.signals import load_torch

    load_torch("regard.demo")
    from regard.demo import run_demo

    tell(run_demo(out, minutes=minutes, overrides=overrides_of({}, set_)), out)


def train(
    recipe: Name,
    /,
    *,
    source: Files = (),
    target: Files = (),
    tsv: Files = (),
    valid_source: DataFile = None,
    valid_target: DataFile = None,
    valid_tsv: DataFile = None,
    text: Files = (),
    valid_text: DataFile = None,
    out: Path | None = None,
    set_: Set = (),
    resume: bool = False,
    init: Path | None = None,
    init_encoder: Path | None = None,
    init_decoder: Path | None = None,
    dry_run: bool = False,
) -> None:
    """Train a model as a recipe says.

    The text of a translator is two line-aligned files, or a TSV file; that of a language model
    or an encoder is --text. Files may be plain, .gz, .xz or .zst.
    Without validation files some of the training text is held out.
    A data option stands for the recipe key of that name (--source: data.source).

    Args:
        recipe: A recipe's name (see regard recipe list), a TOML file, or a run folder.
        source: Source text. May be repeated, and may name several files.
        target: Target text, line by line the translation of the source.
        tsv: Both sides in one file, a tab between them. Instead of source and target.
        valid_source: Source text to validate with.
        valid_target: Target text to validate with.
        valid_tsv: Both sides to validate with.
        text: Plain text, for a model of one side. May be repeated, and may name several files.
        valid_text: Plain text to validate with.
        out: The run folder to write. Default: runs/ and the recipe's name.
        resume: Go on with the run folder given, exactly where it stopped.
        init: Start from this run folder's weights and vocabulary (fine-tuning).
        init_encoder: Take the translator's encoder from this run of an encoder.
        init_decoder: Take the translator's decoder from this run of a language model.
        dry_run: Try out every part for a moment, and predict memory and time.
    """
    from regard.recipes.load import load_recipe
    from regard.recipes.overrides import changes_of
    from regard.recipes.refusals import (
        refuse_other_text,
        refuse_settled,
        refuse_with_resume,
        require_run_to_resume,
    )
    from regard.signals import load_torch

    training = {"source": source, "target": target, "tsv": tsv, "text": text}
    validation = {
        "source": valid_source, "target": valid_target, "tsv": valid_tsv, "text": valid_text,
    }  # fmt: skip
    data: dict[str, object] = {
        **{f"data.{key}": [str(path) for path in paths] or None for key, paths in training.items()},
        **{f"data.valid_{key}": path and str(path) for key, path in validation.items()},
    }
    if resume:
        require_run_to_resume(recipe)
    refuse_other_text(Path(recipe) if resume else recipe, data)
    parts: dict[str, object] = {
        "init_encoder": init_encoder and str(init_encoder),
        "init_decoder": init_decoder and str(init_decoder),
    }
    overrides = overrides_of({**data, **parts}, set_)
    if resume:
        refuse_with_resume(
            out=out,
            init=init,
            init_encoder=init_encoder,
            init_decoder=init_decoder,
            dry_run=dry_run,
        )
        load_torch("regard.recipes.run")
        from regard.recipes.run import resume as resume_run

        resume_run(Path(recipe), overrides)
        return
    loaded = load_recipe(recipe, overrides)  # first, for a mistake must not wait for torch
    refuse_settled(loaded, changes_of(set_)[1], init=str(init or ""))
    load_torch("regard.recipes.run")
    from regard.recipes.run import train as train_run

    out = out or Path("runs") / Path(recipe).resolve().name.removesuffix(".toml")
    train_run(loaded, out, init=init, dry_run=dry_run)


def finetune(
    run: Name,
    /,
    *,
    labels: Annotated[
        tuple[Path, ...], Parameter(consume_multiple=True, group=DATA, required=True)
    ],
    valid_labels: DataFile = None,
    out: Path | None = None,
    epochs: float | None = None,
    set_: Set = (),
) -> None:
    """Train an encoder to classify text, from the weights of a run.

    Labelled text has a line for each text: its label, a tab, the text. Without validation files
    some of the lines are held out. What the run's recipe says of training is replaced: a low
    learning rate that falls to 0, over a few epochs; --set changes it.

    Args:
        run: The run folder of an encoder; or a recipe's name, to start from nothing.
        labels: Labelled text to train on. May be repeated, and may name several files.
        valid_labels: Labelled text to validate with.
        out: The run folder to write. Default: runs/ and the run's name with -labels.
        epochs: How often each text is seen. Default: 4.
    """
    from regard.recipes.finetune import EPOCHS, classifier_recipe
    from regard.recipes.overrides import changes_of
    from regard.recipes.refusals import refuse_with_epochs, require_epochs
    from regard.signals import load_torch

    options: dict[str, object] = {
        "labels.train": [str(path) for path in labels],
        "labels.valid": valid_labels and str(valid_labels),
    }
    overrides = overrides_of(options, set_)
    given = changes_of(set_)[1]
    if epochs is not None:
        require_epochs(epochs)
        refuse_with_epochs(given)
    recipe = classifier_recipe(run, overrides)
    load_torch("regard.recipes.run")
    from regard.recipes.run import finetune as finetune_run

    out = out or Path("runs") / f"{Path(run).resolve().name.removesuffix('.toml')}-labels"
    finetune_run(recipe, out, epochs=EPOCHS if epochs is None else epochs, given=given)


def average(
    run: Path,
    /,
    *,
    last: PositiveInt | None = None,
    steps: Annotated[tuple[PositiveInt, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
    undo: bool = False,
) -> None:
    """Average the weights of several checkpoints of a run into the model to use.

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


def merge(run: Path, /, *, out: Path) -> None:
    """Write a run that was adapted with lora.rank as one that needs no other run.

    Args:
        run: The run folder that was adapted.
        out: The run folder to write.
    """
    from regard.signals import load_torch

    load_torch("regard.recipes.merge")
    from regard.recipes.merge import merge_run

    merge_run(run, out)
    tell(f"{out}: {run} with all of its weights", out)
