"""A tiny random language model over the tiny tokenizer, for tests that go from text to text."""

from functools import cache

import torch
from decoding.tiny import tokenizer

from regard.models.config import DecoderConfig
from regard.models.decoder import LanguageModel
from regard.nn.config import LearnedConfig, RotaryConfig
from regard.text.tokenizer import EOS_ID


@cache
def language_model(seed: int = 67, *, max_positions: int = 0, end: float = 0.0) -> LanguageModel:
    """A random model in float64; `end` is added to the end token's logit."""
    torch.manual_seed(seed)
    config = DecoderConfig(
        d_model=16,
        num_heads=2,
        num_kv_heads=1,
        d_ff=32,
        num_layers=2,
        tied=False,
        positions=LearnedConfig(max_positions=max_positions) if max_positions else RotaryConfig(),
        output_bias=True,
    )
    made = LanguageModel(config, vocabulary=tokenizer().size).double().eval()
    with torch.no_grad():
        # Peaked enough that no two tokens are ever near a tie.
        made.output_weight.mul_(60.0)
        assert made.output_bias is not None
        made.output_bias[EOS_ID] += end
    return made
