"""From a config to a model with its first weights."""

import torch

from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
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


def build_language_model(config: DecoderConfig, *, vocabulary: int, seed: int) -> LanguageModel:
    """A new decoder-only model, in the manner of `build_model`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(config, vocabulary=vocabulary)


def build_encoder(
    config: EncoderConfig, *, vocabulary: int, seed: int, classes: int = 0
) -> TextEncoder:
    """A new encoder-only model, in the manner of `build_model`; `classes` 0 for no classifier."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TextEncoder(config, vocabulary=vocabulary, classes=classes)
