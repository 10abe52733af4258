"""How a model is trained."""

from typing import Annotated, Literal

from pydantic import Field

from regard.settings import MOST, MOST_FACTOR, MOST_SEED, Settings


class PaperSchedule(Settings):
    """`scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`.

    Source: Vaswani et al. 2017, equation 3.
    """

    kind: Literal["paper"] = "paper"
    scale: float = Field(default=1.0, gt=0, le=MOST_FACTOR)
    warmup_steps: int = Field(default=4000, ge=1, le=MOST)


class InverseSquareRootSchedule(Settings):
    """Linear warm-up to `learning_rate`, then falls with the square root of the step."""

    kind: Literal["inverse_square_root"] = "inverse_square_root"
    learning_rate: float = Field(default=5e-4, gt=0, le=MOST_FACTOR)
    warmup_steps: int = Field(default=4000, ge=0, le=MOST)


class CosineSchedule(Settings):
    """Linear warm-up to `learning_rate`, then a half cosine down to `final` times it."""

    kind: Literal["cosine"] = "cosine"
    learning_rate: float = Field(default=5e-4, gt=0, le=MOST_FACTOR)
    warmup_steps: int = Field(default=4000, ge=0, le=MOST)
    final: float = Field(default=0.0, ge=0, le=1)


class LinearSchedule(Settings):
    """Linear warm-up to `learning_rate`, then a straight line down to `final` times it."""

    kind: Literal["linear"] = "linear"
    learning_rate: float = Field(default=5e-4, gt=0, le=MOST_FACTOR)
    warmup_steps: int = Field(default=4000, ge=0, le=MOST)
    final: float = Field(default=0.0, ge=0, le=1)


ScheduleConfig = Annotated[
    PaperSchedule | InverseSquareRootSchedule | CosineSchedule | LinearSchedule,
    Field(discriminator="kind"),
]


class AdamConfig(Settings):
    """Adam with the paper's constants. Source: Vaswani et al. 2017, section 5.3."""

    kind: Literal["adam"] = "adam"
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.98, ge=0, lt=1)
    eps: float = Field(default=1e-9, gt=0, le=1)


class AdamWConfig(Settings):
    """Adam with decoupled weight decay on matrices. Source: arXiv:1711.05101."""

    kind: Literal["adamw"] = "adamw"
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.98, ge=0, lt=1)
    eps: float = Field(default=1e-9, gt=0, le=1)
    weight_decay: float = Field(default=0.01, ge=0, le=MOST_FACTOR)


OptimizerConfig = Annotated[AdamConfig | AdamWConfig, Field(discriminator="kind")]

Metric = Literal["loss", "perplexity", "bleu", "chrf", "accuracy", "f1"]


class TrainingConfig(Settings):
    """The training loop; the defaults are the paper's `base` (section 5).

    A step sees up to `batch_tokens` source tokens and as many target tokens, padding counted,
    and is cut into `accumulate` equal parts when memory asks for it; the result is the same. With
    `activation_checkpointing` the layers are computed again in the backward pass instead of kept.
    Of several processes each holds all weights, or with `parallel` `shard` its share of them.
    `clip_norm` 0 leaves gradients alone. `precision` `auto` measures the machine once and takes
    the faster of float32 and bfloat16 autocast; what it took is printed and kept with the run.
    `ema_decay` above 0 keeps a moving average of the weights, which then validates, translates
    and is saved as the model.

    A step whose loss or gradient is not finite changes nothing; after `max_skipped` such steps in
    a row training ends.

    Every `checkpoint_every` steps the whole state is saved; the last `keep_last` are kept, and
    the weights that were best by `best_metric`. Every `validate_every` steps (0: as often as
    checkpoints) the validation text is scored and translated. After `patience` validations
    without a better `best_metric` training stops early (0: never).
    """

    max_steps: int = Field(default=100_000, ge=1, le=MOST)
    seed: int = Field(default=1, ge=0, le=MOST_SEED)
    batch_tokens: int = Field(default=25_000, ge=1, le=MOST)
    accumulate: int = Field(default=1, ge=1, le=MOST)
    activation_checkpointing: bool = False
    parallel: Literal["replicate", "shard"] = "replicate"
    optimizer: OptimizerConfig = AdamConfig()
    schedule: ScheduleConfig = PaperSchedule()
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    clip_norm: float = Field(default=0.0, ge=0, le=MOST_FACTOR)
    max_skipped: int = Field(default=10, ge=1, le=MOST)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    checkpoint_every: int = Field(default=1000, ge=1, le=MOST)
    keep_last: int = Field(default=5, ge=1, le=MOST)
    best_metric: Metric = "bleu"
    validate_every: int = Field(default=0, ge=0, le=MOST)
    patience: int = Field(default=0, ge=0, le=MOST)
    log_every: int = Field(default=50, ge=1, le=MOST)
    sample_lines: int = Field(default=4, ge=0, le=MOST)
