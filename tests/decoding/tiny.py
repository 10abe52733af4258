"""A tiny tokenizer and random models over it, for tests that go from text to text."""

from functools import cache

import torch

from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.config import LearnedConfig, SinusoidalConfig
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import EOS_ID, Tokenizer

LINES = [
    "the door is open",
    "close the window, please",
    "Licht",
    "a",
    "the window in the kitchen is open",
    "turn the light on; then off",
    "open the door. Close the window! Is it on?",
    "kitchen",
]


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train(iter(LINES * 3), VocabularyConfig(size=330))


@cache
def model(seed: int = 67, *, max_positions: int = 0, end: float = 0.5) -> Transformer:
    """A random model in float64; `end` is how much longer the end token's vector is made."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        d_model=16,
        num_heads=2,
        d_ff=32,
        encoder_layers=1,
        decoder_layers=2,
        tying="none",
        positions=LearnedConfig(max_positions=max_positions)
        if max_positions
        else SinusoidalConfig(),
    )
    size = tokenizer().size
    made = Transformer(config, source_vocabulary=size, target_vocabulary=size).double().eval()
    with torch.no_grad():
        # Peaked enough that no two tokens are ever near a tie, and that lines do end.
        made.output_weight.mul_(4.0)
        made.output_weight[EOS_ID].mul_(1.0 + end)
    return made
