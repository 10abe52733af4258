"""A model packed for the engine, to be written to a file and used from there."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine import native
from regard.engine.engine import Dtype
from regard.engine.native import EngineError
from regard.engine.support import native_config, refusal
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
    if problem := native.absence():
        raise EngineError(f"there is no engine: {problem}")
    if problem := refusal(config):
        raise EngineError(f"the engine does not support {problem}")
    try:
        sections: dict[str, NDArray[np.uint8]] = (
            native.module()
            .Packed(
                config=native_config(
                    config,
                    source_vocabulary=source_vocabulary,
                    target_vocabulary=target_vocabulary,
                ),
                weights={
                    name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()
                },
                dtype=dtype,
            )
            .sections()
        )
    except ValueError as error:
        raise ModelError(str(error)) from None
    return sections
