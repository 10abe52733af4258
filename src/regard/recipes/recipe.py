"""The Recipe: everything that makes a run, in one frozen value."""

from regard.decoding.config import DecodingConfig
from regard.models.config import TransformerConfig
from regard.settings import Settings
from regard.text.config import DataConfig, VocabularyConfig
from regard.training.config import TrainingConfig


class Recipe(Settings):
    """A run of an encoder-decoder model: data, vocabulary, model, training, decoding."""

    description: str = ""
    data: DataConfig = DataConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: TransformerConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
