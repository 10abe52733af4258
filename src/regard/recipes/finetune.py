"""A classifier's recipe, from that of the encoder that it starts from."""

import math
from collections.abc import Sequence
from pathlib import Path

from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import EncoderRecipe
from regard.recipes.write import toml_value

# What was found for BERT base (arXiv:1810.04805, appendix A.3); a narrower model takes more.
_RATE, _WIDTH = 5e-5, 768
_WARM_UP = 0.1


def classifier_recipe(name_or_path: str | Path, overrides: Sequence[str]) -> EncoderRecipe:
    """The recipe of a classifier that starts from a run, or from nothing where it is a recipe.

    How to train is not taken from the encoder's recipe; `overrides` are laid over all.

    Args:
        name_or_path: the run folder of an encoder, a recipe's name, or a TOML file.
        overrides: `key=value` changes, those that name the labelled text among them.

    Raises:
        As `load_recipe_of`.
    """
    base = load_recipe_of(EncoderRecipe, name_or_path)
    defaults = {
        "description": f"A classifier, from {name_or_path}.",
        "init": str(name_or_path) if Path(name_or_path).is_dir() else "",
        "model.prediction_head": False,
        "training.batch_tokens": 2048,
        "training.accumulate": 1,
        "training.label_smoothing": 0.0,
        "training.clip_norm": 1.0,
        "training.ema_decay": 0.0,
        "training.best_metric": "f1",
        "training.keep_last": 1,
        "training.validate_every": 0,
        "training.optimizer.kind": "adamw",
        "training.optimizer.beta2": 0.999,
        "training.optimizer.eps": 1e-8,
        "training.schedule.kind": "linear",
        "training.schedule.learning_rate": _RATE * max(1.0, _WIDTH / base.model.d_model),
    }
    changes = [f"{key}={toml_value(value)}" for key, value in defaults.items()]
    return load_recipe_of(EncoderRecipe, name_or_path, [*changes, *overrides])


def planned(recipe: EncoderRecipe, epochs: int | float, batches: int) -> EncoderRecipe:
    """The recipe with steps for so many epochs of so many batches, measured after each epoch."""
    steps = max(1, math.ceil(epochs * batches))
    schedule = recipe.training.schedule.model_copy(
        update={"warmup_steps": math.ceil(_WARM_UP * steps)}
    )
    training = recipe.training.model_copy(
        update={
            "max_steps": steps,
            "checkpoint_every": batches,
            "log_every": max(1, min(recipe.training.log_every, batches // 4)),
            "schedule": schedule,
        }
    )
    return recipe.model_copy(update={"training": training})
