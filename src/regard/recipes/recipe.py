"""The Recipe: everything that makes a run, in one frozen value; one class a family of models."""

from collections.abc import Sequence
from typing import Final, Literal, Self

from pydantic import model_validator

from regard.decoding.config import DecodingConfig
from regard.decoding.generation import GenerationConfig
from regard.models.config import DecoderConfig, EncoderConfig, LayerConfig, TransformerConfig
from regard.nn.config import LoraConfig
from regard.settings import Settings
from regard.text.config import (
    DataConfig,
    LabelsConfig,
    MaskingConfig,
    TextConfig,
    VocabularyConfig,
)
from regard.training.config import Metric, TrainingConfig

# What a family's recipes leave out of `training` is not smoothed, and judged by its loss.
_PLAIN: Final = TrainingConfig(label_smoothing=0.0, best_metric="loss")


class Recipe(Settings):
    """A run of an encoder-decoder model: data, vocabulary, model, training, decoding.

    `init` names the run folder that the first weights and the vocabulary came from; where it is
    empty, both are made anew. `init_encoder` and `init_decoder` name runs of an encoder and of a
    language model that are the start of one part each; vocabulary and shape come from them.
    """

    description: str = ""
    family: Literal["seq2seq"] = "seq2seq"
    init: str = ""
    init_encoder: str = ""
    init_decoder: str = ""
    data: DataConfig = DataConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: TransformerConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
    lora: LoraConfig = LoraConfig()
    decoding: DecodingConfig = DecodingConfig()

    @property
    def measured(self) -> tuple[Metric, ...]:
        """What a validation measures, and so what can be best."""
        return ("loss", "perplexity", "bleu", "chrf")

    @property
    def unit(self) -> str:
        """What a loss is a mean over."""
        return "target token"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.model.tying == "three_way" and not self.vocabulary.joint:
            raise ValueError(
                'model.tying = "three_way" needs vocabulary.joint = true; '
                'for two vocabularies set model.tying to "two_way" or "none"'
            )
        if self.init and (self.init_encoder or self.init_decoder):
            raise ValueError(
                "init starts the whole model from a run, and init_encoder and init_decoder a part "
                "of it each; give the one or the others"
            )
        _check_metric(self.training.best_metric, self.measured)
        _check_length(self.model, self.data.max_tokens, 1, "the end token")
        _check_adapted(self.lora, self.model)
        return self


class DecoderRecipe(Settings):
    """A run of a decoder-only (GPT-type) model: text, vocabulary, model, training, generation.

    `init` is as in the recipe of an encoder-decoder.
    """

    description: str = ""
    family: Literal["decoder"] = "decoder"
    init: str = ""
    data: TextConfig = TextConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: DecoderConfig = DecoderConfig()
    training: TrainingConfig = _PLAIN
    lora: LoraConfig = LoraConfig()
    generation: GenerationConfig = GenerationConfig()

    @property
    def measured(self) -> tuple[Metric, ...]:
        """What a validation measures, and so what can be best."""
        return ("loss", "perplexity")

    @property
    def unit(self) -> str:
        """What a loss is a mean over."""
        return "token"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        _check_vocabulary(self.vocabulary)
        _check_metric(self.training.best_metric, self.measured)
        _check_length(self.model, self.data.max_tokens)
        _check_adapted(self.lora, self.model)
        return self


class EmbeddingConfig(Settings):
    """How a text becomes one vector.

    `pooling` takes the mean over its tokens, or the vector of the first (`cls`); `normalize`
    brings it to length 1.
    """

    pooling: Literal["mean", "cls"] = "mean"
    normalize: bool = True


class EncoderRecipe(Settings):
    """A run of an encoder-only (BERT-type) model, which fills masked tokens or tells classes.

    With labels (`labels.train` or `labels.names`) it is a classifier; otherwise it is trained on
    the text of `data`, to fill what `masking` hides. `init` is as in the recipe of an
    encoder-decoder.
    """

    description: str = ""
    family: Literal["encoder"] = "encoder"
    init: str = ""
    data: TextConfig = TextConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: EncoderConfig = EncoderConfig()
    training: TrainingConfig = _PLAIN
    lora: LoraConfig = LoraConfig()
    masking: MaskingConfig = MaskingConfig()
    labels: LabelsConfig = LabelsConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()

    @property
    def classifies(self) -> bool:
        """Whether it tells classes, rather than fill masked tokens."""
        return bool(self.labels.train or self.labels.names)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """What a validation measures, and so what can be best."""
        if self.classifies:
            return ("loss", "accuracy", "f1")
        return ("loss", "perplexity", "accuracy")

    @property
    def unit(self) -> str:
        """What a loss is a mean over."""
        return "text" if self.classifies else "masked token"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        _check_vocabulary(self.vocabulary)
        _check_metric(self.training.best_metric, self.measured)
        _check_length(self.model, self.data.max_tokens)
        _check_adapted(self.lora, self.model)
        if not self.classifies and self.data.text and not self.model.prediction_head:
            raise ValueError(
                "model.prediction_head = false has nothing to fill masked tokens with; "
                "set it to true, or give labels.train"
            )
        return self


AnyRecipe = Recipe | DecoderRecipe | EncoderRecipe

Family = Literal["seq2seq", "decoder", "encoder"]
FAMILIES: Final[dict[Family, type[AnyRecipe]]] = {
    "seq2seq": Recipe,
    "decoder": DecoderRecipe,
    "encoder": EncoderRecipe,
}


def _check_metric(metric: Metric, measured: Sequence[Metric]) -> None:
    if metric not in measured:
        names = [f'"{name}"' for name in measured]
        raise ValueError(
            f'training.best_metric = "{metric}" is not measured here; '
            f"choose {', '.join(names[:-1])} or {names[-1]}"
        )


def _check_length(model: LayerConfig, max_tokens: int, more: int = 0, what: str = "") -> None:
    for key, longest in model.limits.items():
        if longest < max_tokens + more:
            raise ValueError(
                f"{key} = {longest} is too few for data.max_tokens = {max_tokens}"
                + (f" and {what}" if what else "")
            )


def _check_adapted(lora: LoraConfig, model: LayerConfig) -> None:
    if lora.rank and lora.targets != "attention" and model.experts.number:
        raise ValueError(
            f'lora.targets = "{lora.targets}" adapts matrices of the feed-forward, and there are '
            f"model.experts.number = {model.experts.number} of them in a layer; "
            'set lora.targets to "attention"'
        )


def _check_vocabulary(vocabulary: VocabularyConfig) -> None:
    if vocabulary.bpe_dropout:
        raise ValueError(
            f"vocabulary.bpe_dropout = {vocabulary.bpe_dropout} is for recipes of translation only"
        )
