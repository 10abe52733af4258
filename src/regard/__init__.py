"""The Transformer as real software: raw text in, a trained and measured model out.

`regard.load("runs/ende").translate(["Hello"])` translates. The names below are imported when they
are first used, so that `import regard` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from regard.version import VERSION

if TYPE_CHECKING:
    from regard.decoding.config import DecodingConfig
    from regard.decoding.generate import Continuation
    from regard.decoding.generation import GenerationConfig
    from regard.decoding.translation import Translation
    from regard.errors import RegardError
    from regard.models.config import TransformerConfig
    from regard.models.recorded import recorded_attention
    from regard.models.transformer import Transformer
    from regard.recipes.load import load_recipe
    from regard.recipes.recipe import Recipe
    from regard.recipes.run import train
    from regard.recipes.write import format_recipe
    from regard.serving.encoder import Encoder, load_encoder
    from regard.serving.generator import Generator, load_language_model
    from regard.serving.translator import Translator, load
    from regard.text.tokenizer import Tokenizer

__version__ = VERSION

__all__ = [
    "Continuation",
    "DecodingConfig",
    "Encoder",
    "GenerationConfig",
    "Generator",
    "Recipe",
    "RegardError",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "__version__",
    "format_recipe",
    "load",
    "load_encoder",
    "load_language_model",
    "load_recipe",
    "recorded_attention",
    "train",
]

_HOMES = {
    "Continuation": "regard.decoding.generate",
    "DecodingConfig": "regard.decoding.config",
    "Encoder": "regard.serving.encoder",
    "GenerationConfig": "regard.decoding.generation",
    "Generator": "regard.serving.generator",
    "Recipe": "regard.recipes.recipe",
    "RegardError": "regard.errors",
    "Tokenizer": "regard.text.tokenizer",
    "Transformer": "regard.models.transformer",
    "TransformerConfig": "regard.models.config",
    "Translation": "regard.decoding.translation",
    "Translator": "regard.serving.translator",
    "format_recipe": "regard.recipes.write",
    "load": "regard.serving.translator",
    "load_encoder": "regard.serving.encoder",
    "load_language_model": "regard.serving.generator",
    "load_recipe": "regard.recipes.load",
    "recorded_attention": "regard.models.recorded",
    "train": "regard.recipes.run",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
