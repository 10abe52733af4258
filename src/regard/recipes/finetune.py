"""A classifier's recipe, from that of the encoder that it starts from."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from regard.errors import RecipeError
from regard.nn.config import LoraConfig
from regard.recipes.label_names import names_kept
from regard.recipes.load import change_recipe, load_recipe_of
from regard.recipes.names import resolve
from regard.recipes.overrides import changes_of
from regard.recipes.recipe import EncoderRecipe
from regard.recipes.refusals import refuse_settled
from regard.text.config import LabelsConfig
from regard.training.config import AdamWConfig, LinearSchedule, TrainingConfig

EPOCHS: Final = 4.0

# What was found for BERT base (arXiv:1810.04805, appendix A.3); a narrower model takes more.
_RATE, _WIDTH = 5e-5, 768
_WARM_UP = 0.1
# What of a recipe's training is about the machine, or how long it is, and stays.
_KEPT = {
    "seed", "device", "precision", "sample_lines", "max_steps", "checkpoint_every", "log_every",
}  # fmt: skip


def classifier_recipe(name_or_path: str | Path, overrides: Sequence[str]) -> EncoderRecipe:
    """The recipe of a classifier that starts from a run, or from nothing where it is a recipe.

    How to train is not taken from the encoder's recipe, nor are its labels if the text has
    others; `overrides` are laid over all.

    Args:
        name_or_path: the run folder of an encoder, a recipe's name, or a TOML file.
        overrides: `key=value` changes, those that name the labelled text among them.

    Raises:
        RecipeError: as `load_recipe_of`; or the name is a recipe's and a folder's, or a change
            is of what comes from the run.
        RunFolderError: as `load_recipe_of`.
        DataError: the encoder has labels, and those of the text can't be read.
    """
    named = resolve(name_or_path)
    if named.kind == "preset" and Path(name_or_path).is_dir():
        raise RecipeError(
            "is the name of a recipe and of a folder here",
            where=str(name_or_path),
            hint=f"Write ./{name_or_path} for the folder; for the recipe, go to another folder.",
        )
    base = load_recipe_of(EncoderRecipe, name_or_path)
    init = str(name_or_path) if named.kind == "run" else ""
    schedule = LinearSchedule(
        learning_rate=_RATE * max(1.0, _WIDTH / base.model.d_model),
        warmup_steps=base.training.schedule.warmup_steps,
    )
    training = TrainingConfig(
        batch_tokens=2048,
        label_smoothing=0.0,
        clip_norm=1.0,
        best_metric="f1",
        keep_last=1,
        optimizer=AdamWConfig(beta2=0.999, eps=1e-8),
        schedule=schedule,
        **base.training.model_dump(include=_KEPT),
    )
    fresh = base.model_copy(
        update={
            "description": f"A classifier, from {name_or_path}.",
            "init": init,
            "model": base.model.model_copy(
                update={
                    "prediction_head": False,
                    # A new classifier looks at what the encoder's vectors are made of.
                    "classifier_pooling": base.model.classifier_pooling
                    if base.classifies
                    else base.embedding.pooling,
                }
            ),
            "training": training,
            "lora": LoraConfig(),
            "labels": LabelsConfig(),
        }
    )
    recipe = change_recipe(fresh, overrides, source=named.source)
    changed = changes_of(overrides)[1]
    refuse_settled(recipe, changed)
    if "labels.names" in changed:
        return recipe
    names = names_kept(recipe.labels, base.labels.names)
    return recipe.model_copy(update={"labels": recipe.labels.model_copy(update={"names": names})})


def planned(
    recipe: EncoderRecipe, epochs: int | float, batches: int, given: Collection[str] = ()
) -> EncoderRecipe:
    """The recipe with steps for so many epochs of so many batches, measured after each epoch.

    Args:
        recipe: what to plan.
        epochs: how often each text is seen, unless `given` has the steps.
        batches: those of an epoch.
        given: the dotted keys that stay as they are in the recipe.
    """
    training = recipe.training
    steps = max(1, math.ceil(epochs * batches))
    if "training.max_steps" in given:
        steps = training.max_steps
    changes = {
        "max_steps": steps,
        "checkpoint_every": batches,
        "log_every": max(1, min(training.log_every, batches // 4)),
    }
    changes = {key: value for key, value in changes.items() if f"training.{key}" not in given}
    schedule = training.schedule
    if "training.schedule.warmup_steps" not in given:
        schedule = schedule.model_copy(update={"warmup_steps": math.ceil(_WARM_UP * steps)})
    training = training.model_copy(update={**changes, "schedule": schedule})
    return recipe.model_copy(update={"training": training})
