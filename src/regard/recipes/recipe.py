"""The Recipe: everything that makes a run, in one frozen value."""

from typing import Self

from pydantic import model_validator

from regard.decoding.config import DecodingConfig
from regard.models.config import TransformerConfig
from regard.nn.config import LearnedConfig
from regard.settings import Settings
from regard.text.config import DataConfig, VocabularyConfig
from regard.training.config import TrainingConfig


class Recipe(Settings):
    """A run of an encoder-decoder model: data, vocabulary, model, training, decoding.

    `init` names the run folder that the first weights and the vocabulary came from; where it is
    empty, both are made anew.
    """

    description: str = ""
    init: str = ""
    data: DataConfig = DataConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: TransformerConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.model.tying == "three_way" and not self.vocabulary.joint:
            raise ValueError(
                'model.tying = "three_way" needs vocabulary.joint = true; '
                'for two vocabularies set model.tying to "two_way" or "none"'
            )
        positions, longest = self.model.positions, self.data.max_tokens + 1
        if isinstance(positions, LearnedConfig) and positions.max_positions < longest:
            raise ValueError(
                f"model.positions.max_positions = {positions.max_positions} is too few for "
                f"data.max_tokens = {self.data.max_tokens} and the end token"
            )
        return self
