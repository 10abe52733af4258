"""What a checkpoint from elsewhere is once it is read, and what a model is on its way out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from regard.models.config import ModelConfig
from regard.shapes import Tensor
from regard.text.vocabulary import Vocabulary
from regard.weights.foreign.folder import ForeignFolder

Config = TypeVar("Config", bound=ModelConfig)


@dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A model that was trained elsewhere, as one of ours.

    Args:
        family: which of our models it is.
        config: what it is made of.
        weights: its weights by our names, in float32.
        vocabularies: of source and target, as a run folder keeps them; the second is None where
            one serves both. None where the checkpoint came without.
        origin: what it is and where it came from, for a person.
        max_tokens: the most tokens of a text that it was made for.
        decoding: settings of its search or generation, by the keys of our configs.
        embedding: how it makes a vector of a text (`pooling`, `normalize`).
        labels: the names of its classes, in order; empty where it has none.
        notes: what was left out of it or is done otherwise here, a sentence each.
    """

    family: Literal["seq2seq", "decoder", "encoder"]
    config: ModelConfig
    weights: Mapping[str, Tensor]
    vocabularies: tuple[bytes, bytes | None] | None
    origin: str
    max_tokens: int = 512
    decoding: Mapping[str, Any] = field(default_factory=dict)
    embedding: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Checkpoints that are read alike: the model types that they are of, and what reads them.

    `architectures` are the classes of transformers that it reads; one for another task has heads,
    or uses of them, that no model here has.
    """

    types: tuple[str, ...]
    read: Callable[[ForeignFolder], ForeignModel]
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OwnModel(Generic[Config]):
    """A model of a run folder, to be written in a format from elsewhere.

    `max_tokens` is the most tokens of a text that it was trained on, `beam` how wide it searches,
    and `labels` are the names of its classes.
    """

    config: Config
    weights: Mapping[str, Tensor]
    source: Vocabulary
    target: Vocabulary
    max_tokens: int
    beam: int = 1
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """A model in the names of another format: its config.json, weights, and remarks on it."""

    values: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    generation: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
