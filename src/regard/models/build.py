"""From a config to a model with its first weights."""

import torch

from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer


def build_model(
    config: TransformerConfig, *, source_vocabulary: int, target_vocabulary: int, seed: int
) -> Transformer:
    """A new model; the same seed gives the same weights, and torch's generator stays as it was.

    Weights are drawn on the CPU: move the model afterwards.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(
            config, source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary
        )
