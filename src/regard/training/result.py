"""How a training ended."""

from dataclasses import dataclass

from regard.training.validation import Validation


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """How a training ended: after `step` steps, because of `reason`.

    `reason` is "max_steps" or "patience". The run's model is that of `model_step`: the best by
    the recipe's metric, whose value was `best_value`, or the last where nothing was validated.
    `validation` is the last one of this start. `seconds` counts earlier starts too.
    """

    step: int
    reason: str
    model_step: int
    best_value: float | None
    seconds: float
    validation: Validation | None
