"""Rotary positions as the config.json of LLaMA and its kin says them, read and written."""

import math
from typing import Any, assert_never

from regard.nn.config import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoScalingConfig,
    NTKScalingConfig,
    RotaryConfig,
    RotaryScalingConfig,
    YarnScalingConfig,
)
from regard.nn.rotary import rotary_base
from regard.weights.foreign.keys import Keys


def read_rotary(keys: Keys, longest: int) -> RotaryConfig:
    """Positions, as `rope_parameters` says or, in older files, `rope_theta` and `rope_scaling`."""
    newer = "rope_parameters" in keys
    theta = keys.number("rope_theta", 10_000.0)
    original = keys.whole("original_max_position_embeddings", longest)
    older = keys.table("rope_scaling")
    rope = keys.table("rope_parameters") if newer else older
    if newer:
        if "rope_scaling" in keys:
            keys.refuse("rope_scaling", "nothing beside rope_parameters")
        theta = rope.number("rope_theta", theta)
    else:
        rope.without_effect("rope_theta")
    rope.settled("partial_rotary_factor", 1.0, 1)
    keys.settled("partial_rotary_factor", 1.0, 1)
    kind = rope.text("rope_type", rope.text("type", "default"))
    original = rope.whole("original_max_position_embeddings", original)
    scaling: RotaryScalingConfig = NoScalingConfig()
    match kind:
        case "default":
            pass
        case "linear":
            scaling = LinearScalingConfig(factor=rope.number("factor"))
        case "llama3":
            scaling = Llama3ScalingConfig(
                factor=rope.number("factor"),
                low_factor=rope.number("low_freq_factor"),
                high_factor=rope.number("high_freq_factor"),
                original_positions=original,
            )
        case "yarn":
            factor = rope.number("factor", longest / max(original, 1))
            scaling = YarnScalingConfig(
                factor=factor,
                original_positions=original,
                beta_fast=rope.number("beta_fast", 32.0) or 32.0,
                beta_slow=rope.number("beta_slow", 1.0) or 1.0,
                attention_factor=_attention_factor(rope, factor),
                truncate=rope.flag("truncate", True),
            )
        case _:
            rope.refuse(
                "rope_type" if "rope_type" in rope else "type",
                "default, linear, llama3 or yarn (phases that hang on the length of the text "
                "are none of them)",
            )
    rope.close(general=False)
    return RotaryConfig(theta=theta, scaling=scaling)


def rope_parameters(positions: RotaryConfig, head_dim: int) -> dict[str, Any]:
    """Positions as `rope_parameters` of a config.json."""
    scaling = positions.scaling
    values: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": rotary_base(positions, head_dim),
    }
    match scaling:
        case NoScalingConfig() | NTKScalingConfig():  # NTK is a larger base, and nothing else
            pass
        case LinearScalingConfig():
            values |= {"rope_type": "linear", "factor": scaling.factor}
        case Llama3ScalingConfig():
            values |= {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_factor,
                "high_freq_factor": scaling.high_factor,
                "original_max_position_embeddings": scaling.original_positions,
            }
        case YarnScalingConfig():
            values |= {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_positions,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "truncate": scaling.truncate,
            }
            if scaling.attention_factor is not None:
                values["attention_factor"] = scaling.attention_factor
        case _ as never:
            assert_never(never)
    return values


def _attention_factor(rope: Keys, factor: float) -> float | None:
    """What sines and cosines are multiplied by, where it isn't what `factor` makes it."""
    rope.without_effect("mscale", "mscale_all_dim")
    if "attention_factor" in rope:
        return rope.number("attention_factor")
    scale, all_dim = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    if not scale or not all_dim:
        return None
    return _sharpened(factor, scale) / _sharpened(factor, all_dim)


def _sharpened(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
