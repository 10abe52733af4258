"""The average of several checkpoints' weights, which is often better than the last."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from regard.counts import counted
from regard.errors import RunFolderError
from regard.nn.lora import is_factor
from regard.shapes import Tensor
from regard.weights.checkpoints import (
    CHECKPOINTS,
    Checkpoint,
    checkpoint_steps,
    find_checkpoint,
    latest_checkpoints,
)
from regard.weights.fit import misfits
from regard.weights.layout import MODEL, TRAINED
from regard.weights.run_folder import RunFolder
from regard.weights.tensors import tied_names

_MADE = "made"


def average_weights(checkpoints: Sequence[Checkpoint], group: str = "model") -> dict[str, Tensor]:
    """The mean of each weight over checkpoints, summed in float64 and given back in its own type.

    Tied weights stay tied. Whole numbers (there is no mean of them) are those of the last.

    Args:
        checkpoints: one or more, in order.
        group: which tensors of theirs: "model", or "ema" for their moving averages.

    Raises:
        RunFolderError: one is damaged, or their weights differ in names or shapes.

    Source: Vaswani et al. 2017, section 6.1.
    """
    last = checkpoints[-1].tensors(group)
    for name in last:
        if is_factor(name):
            raise RunFolderError(
                "checkpoints of a low-rank adaptation have no average: the mean of products is "
                "not the product of means",
                where=str(checkpoints[-1].path),
            )
    tied = tied_names(last)
    names = [name for name, weight in last.items() if weight.is_floating_point()]
    sums = {
        name: torch.zeros_like(last[name], dtype=torch.float64) for name in set(names) - {*tied}
    }
    for checkpoint in checkpoints:
        weights = last if checkpoint is checkpoints[-1] else checkpoint.tensors(group)
        _require_same(weights, last, checkpoint, checkpoints[-1])
        for name, total in sums.items():
            total.add_(weights[name])
    means = {name: (total / len(checkpoints)).to(last[name].dtype) for name, total in sums.items()}
    return {name: means.get(tied.get(name, name), weight) for name, weight in last.items()}


def average_checkpoints(
    run: RunFolder,
    *,
    last: int | None = None,
    steps: Sequence[int] = (),
    out: str | Path | None = None,
    log: Callable[[str], None],
) -> list[int]:
    """Average checkpoints into a model to use; say which steps went in.

    Without `out` the average becomes the run's model.safetensors, and the model that training
    wrote is kept as model.trained.safetensors (`restore_trained` brings it back). With `out` it
    goes to a new run folder with the same recipe and vocabularies, and `run` stays as it is.

    The moving averages are averaged if every checkpoint has them, as they are what the run
    is used with; otherwise the weights.

    Args:
        run: the run; opened for writing unless `out` is given.
        last: how many of the newest whole checkpoints; or
        steps: exactly these.
        out: a new run folder.
        log: is told of damaged checkpoints that were passed over.

    Raises:
        RunFolderError: there are fewer checkpoints, one of `steps` is missing or damaged, the
            weights don't fit together, the run is packed, or the model can't be written.
    """
    run.require_plain()
    chosen = _chosen(run.path, last, steps, log)
    group = "ema" if all("ema" in checkpoint.names for checkpoint in chosen) else "model"
    weights = average_weights(chosen, group)
    taken = [checkpoint.step for checkpoint in chosen]
    notes = {_MADE: "average", "of": group, "steps": " ".join(map(str, taken))}
    if out is not None:
        _write_new(run, Path(out), weights, notes)
        return taken
    if run.is_whole(MODEL) and run.model_notes().get(_MADE) != "average":
        run.copy_file(MODEL, TRAINED)
    run.write_model(weights, notes)
    return taken


def restore_trained(run: RunFolder) -> None:
    """Bring back the model that training wrote, after `average_checkpoints` replaced it.

    Raises:
        RunFolderError: there is none, it is damaged, or it can't be written.
    """
    run.require_plain()
    if TRAINED not in run.files:
        raise RunFolderError("no average took the model's place", where=str(run.path))
    run.copy_file(TRAINED, MODEL)


def _chosen(
    folder: Path, last: int | None, steps: Sequence[int], log: Callable[[str], None]
) -> list[Checkpoint]:
    if (last is None) == (not steps):
        raise ValueError("give last or steps, one of the two")
    if last is None:
        return [find_checkpoint(folder, step) for step in sorted(set(steps))]
    if last < 1:
        raise RunFolderError(
            f"the average of the last {last} checkpoints is no model; use 1 or more"
        )
    whole = latest_checkpoints(folder, last, log)
    if len(whole) < last:
        damaged = len(checkpoint_steps(folder)) - len(whole)
        raise RunFolderError(
            f"wanted {counted(last, 'whole checkpoint')}, found {len(whole)}"
            + (f" (and {damaged} damaged)" if damaged else ""),
            where=str(folder / CHECKPOINTS),
            hint=f"Use --last {len(whole)}." if whole else "Train the run first.",
        )
    return whole


def _require_same(
    weights: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    checkpoint: Checkpoint,
    reference: Checkpoint,
) -> None:
    for misfit in misfits(weights, wanted):
        raise RunFolderError(
            f"{misfit.name} is {misfit.found}, and {misfit.wanted} at step {reference.step}: "
            "they are not of one model",
            where=str(checkpoint.path),
        )


def _write_new(
    run: RunFolder, out: Path, weights: Mapping[str, Tensor], notes: Mapping[str, str]
) -> None:
    tokenizers = run.tokenizer_files()
    recipe = run.recipe_text()
    with RunFolder.create(out, whole=True) as new:
        new.write_recipe(recipe)
        new.write_tokenizers(tokenizers.source, None if tokenizers.joint else tokenizers.target)
        new.write_model(weights, notes)
