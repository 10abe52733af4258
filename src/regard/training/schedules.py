"""Learning rates as pure functions of the step, so that a resumed run needs no schedule state."""

import math

from regard.training.config import (
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    PaperSchedule,
    ScheduleConfig,
)


def learning_rate(config: ScheduleConfig, step: int, d_model: int, max_steps: int) -> float:
    """The learning rate of a step; the first step is 1.

    `d_model` matters to the paper's schedule only, and `max_steps`, where the fall ends, to the
    cosine and the linear one only.

    Source: Vaswani et al. 2017, equation 3 (paper); arXiv:1608.03983 (cosine).
    """
    match config:
        case PaperSchedule():
            rise = step / config.warmup_steps / math.sqrt(config.warmup_steps)
            return config.scale / math.sqrt(d_model) * min(1 / math.sqrt(step), rise)
        case InverseSquareRootSchedule():
            peak = max(config.warmup_steps, 1)
            return config.learning_rate * min(step / peak, math.sqrt(peak / step))
        case CosineSchedule():
            if step < config.warmup_steps:
                return config.learning_rate * step / config.warmup_steps
            left = (1 + math.cos(math.pi * _done(step, config.warmup_steps, max_steps))) / 2
            return config.learning_rate * (config.final + (1 - config.final) * left)
        case LinearSchedule():
            if step < config.warmup_steps:
                return config.learning_rate * step / config.warmup_steps
            left = 1 - _done(step, config.warmup_steps, max_steps)
            return config.learning_rate * (config.final + (1 - config.final) * left)


def _done(step: int, warmup_steps: int, max_steps: int) -> float:
    """The share of the fall that is behind, from 0 at the end of the warm-up to 1."""
    if max_steps <= warmup_steps:
        return 0.0
    return min((step - warmup_steps) / (max_steps - warmup_steps), 1.0)
