"""A model packed for the engine, to be written to a file and used from there."""

from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from regard.engine import native
from regard.engine.engine import Dtype
from regard.engine.support import (
    NativeConfig,
    as_float32,
    encoder_config,
    language_config,
    native_config,
    require,
)
from regard.errors import ModelError
from regard.models.config import DecoderConfig, EncoderConfig, ModelConfig, TransformerConfig


def pack(
    config: ModelConfig,
    weights: Mapping[str, NDArray[Any]],
    *,
    source_vocabulary: int,
    target_vocabulary: int,
    classes: int = 0,
    dtype: Dtype,
) -> dict[str, NDArray[np.uint8]]:
    """The packed parts of a model by name, as the engine of its family takes them for weights.

    They are the same on every instruction set.

    Args:
        config: what the model is made of.
        weights: float32 arrays by the names of the model's state dict.
        source_vocabulary: number of source ids; of all ids where there is one vocabulary.
        target_vocabulary: number of target ids; the same number where there is one vocabulary.
        classes: how many labels an encoder tells apart.
        dtype: as of `regard.engine.engine.Engine`.

    Raises:
        EngineError: there is no engine here, or it does not support the model; says which part.
        ModelError: the weights are not those of the config.
    """
    require(config)
    settings: NativeConfig
    match config:
        case TransformerConfig():
            settings = native_config(
                config, source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary
            )
        case DecoderConfig():
            settings = language_config(config, vocabulary=target_vocabulary)
        case EncoderConfig():
            settings = encoder_config(config, vocabulary=source_vocabulary, classes=classes)
        case _ as never:
            assert_never(never)
    try:
        packed = native.module().Packed(config=settings, weights=as_float32(weights), dtype=dtype)
        sections: dict[str, NDArray[np.uint8]] = packed.sections()
    except ValueError as error:
        raise ModelError(str(error)) from None
    return sections
