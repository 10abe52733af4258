"""A model packed for the engine, to be written to a file and used from there."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine import native
from regard.engine.engine import Dtype
from regard.engine.support import as_float32, native_config, require
from regard.errors import ModelError
from regard.models.config import TransformerConfig


def pack(
    config: TransformerConfig,
    weights: Mapping[str, NDArray[Any]],
    *,
    source_vocabulary: int,
    target_vocabulary: int,
    dtype: Dtype,
) -> dict[str, NDArray[np.uint8]]:
    """The packed parts of a model by name, as `Engine` takes them in the place of weights.

    They are the same on every instruction set.

    Raises:
        EngineError: there is no engine here, or it does not support the model; says which part.
        ModelError: the weights are not those of the config.
    """
    require(config)
    try:
        sections: dict[str, NDArray[np.uint8]] = (
            native.module()
            .Packed(
                config=native_config(
                    config,
                    source_vocabulary=source_vocabulary,
                    target_vocabulary=target_vocabulary,
                ),
                weights=as_float32(weights),
                dtype=dtype,
            )
            .sections()
        )
    except ValueError as error:
        raise ModelError(str(error)) from None
    return sections
