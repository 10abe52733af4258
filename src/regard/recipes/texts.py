"""The parts of a run on text of one side: of a decoder, or of an encoder that fills masks."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from regard.decoding.generate import generate, prompt_ids
from regard.errors import RecipeError
from regard.models.build import build_encoder, build_language_model
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.recipes.adapting import prepare_adaptation
from regard.recipes.assembled import Assembly
from regard.recipes.memory import require_memory
from regard.recipes.recipe import DecoderRecipe, EncoderRecipe
from regard.recipes.start import start_from, with_vocabulary_of
from regard.text.arrays import TextCorpus
from regard.text.corpus import Tokenizers
from regard.text.documents import PreparedText, prepare_text
from regard.text.masking import MaskedBatches
from regard.text.vocabulary import Vocabulary
from regard.text.windows import WindowBatches
from regard.training.losses import language_model_loss, masked_loss
from regard.training.parts import TextPart, split_batch
from regard.training.step import Loss
from regard.training.text_validation import LanguageValidator, MaskedValidator
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers

# What is looked at for the beginnings that a language model goes on with, and their length.
_LOOKED_AT, _PROMPTS, _PROMPT_CHARACTERS = 20_000, 3, 32


@dataclass(frozen=True)
class TextAssembly(Assembly):
    """The parts of a run on documents."""

    recipe: DecoderRecipe | EncoderRecipe
    data: PreparedText

    @property
    def fingerprint(self) -> str:
        """Names the training data, and the windows that it is cut into."""
        return f"{self.data.train.fingerprint} {self.recipe.data.max_tokens}"

    def line(self, row: int) -> tuple[str, int]:
        """The file and the line at which a document begins."""
        return self.data.train.line(row)

    @abstractmethod
    def batches_of(self, corpus: TextCorpus) -> WindowBatches | MaskedBatches:
        """The batches of a text."""

    def batches(self) -> WindowBatches | MaskedBatches:
        """The batches of the training text, in their order."""
        return self.batches_of(self.data.train)

    def fixed_parts(self) -> Iterator[TextPart]:
        """The parts of the validation text, the same each time."""
        for batch in self.batches_of(self.data.valid).fixed():
            for part in split_batch(batch, self.recipe.training.accumulate):
                yield cast(TextPart, part)


@dataclass(frozen=True)
class DecoderAssembly(TextAssembly):
    """The parts of a run of a language model."""

    recipe: DecoderRecipe
    model: LanguageModel

    @property
    def loss(self) -> Loss:
        """What training minimises."""
        return language_model_loss

    @property
    def measured(self) -> Any:  # noqa: ANN401 - any JSON value
        """The validation text and its windows."""
        return self.fingerprint

    def batches_of(self, corpus: TextCorpus) -> WindowBatches:
        """The batches of a text."""
        return WindowBatches(
            corpus,
            self.data.vocabulary,
            max_tokens=self.recipe.data.max_tokens,
            batch_tokens=self.recipe.training.batch_tokens,
            seed=self.recipe.training.seed,
        )

    def validator(self) -> LanguageValidator:
        """What measures the model on the validation text."""
        corpus, vocabulary = self.data.valid, self.data.vocabulary
        texts = (vocabulary.decode(corpus.text.ids(row).tolist()) for row in range(len(corpus)))
        few = min(_PROMPTS, self.recipe.training.sample_lines)
        return LanguageValidator(
            self.fixed_parts,
            sum(len(text.encode("utf-8", "replace")) for text in texts),
            vocabulary,
            prompts=_beginnings(corpus, vocabulary, few, longest=self.recipe.model.longest),
            generation=self.recipe.generation,
        )

    def try_out(self) -> str:
        """Begin a text."""
        config = self.recipe.generation.model_copy(update={"samples": 1, "max_tokens": 8})
        generate(self.model, self.data.vocabulary, [""], config)
        return "a text"


@dataclass(frozen=True)
class MaskedAssembly(TextAssembly):
    """The parts of a run of an encoder that learns to fill masked tokens."""

    recipe: EncoderRecipe
    model: TextEncoder

    @property
    def loss(self) -> Loss:
        """What training minimises."""
        return masked_loss

    @property
    def measured(self) -> Any:  # noqa: ANN401 - any JSON value
        """The validation text, its windows and masks."""
        training = self.recipe.training
        return [
            self.fingerprint,
            self.recipe.masking.model_dump(),
            training.seed,
            training.batch_tokens,
        ]

    def batches_of(self, corpus: TextCorpus) -> MaskedBatches:
        """The batches of a text."""
        return MaskedBatches(
            corpus,
            self.data.vocabulary,
            self.recipe.masking,
            max_tokens=self.recipe.data.max_tokens,
            batch_tokens=self.recipe.training.batch_tokens,
            seed=self.recipe.training.seed,
        )

    def validator(self) -> MaskedValidator:
        """What measures the model on the validation text."""
        return MaskedValidator(self.fixed_parts)

    def try_out(self) -> str:
        """Nothing more: a validation fills masks."""
        return "filling"


def assemble_text(
    recipe: DecoderRecipe | EncoderRecipe,
    folder: Path,
    *,
    start: RunFolder | None,
    vocabularies: RunFolder | None,
    expected: str | None,
    say: Callable[[str], None],
) -> DecoderAssembly | MaskedAssembly:
    """Read and check the text, and build the model; arguments as of `assemble`.

    `start` is the run that the weights come from.
    """
    if not recipe.data.text:
        raise RecipeError(
            "there is no text to train on", where="data.text", hint="Give it with --text FILE."
        )
    data = prepare_text(
        recipe.data,
        recipe.vocabulary,
        folder,
        vocabulary=open_tokenizers(vocabularies).source if vocabularies is not None else None,
        mask=isinstance(recipe, EncoderRecipe),
        expected=expected,
        log=say,
    )
    if start is not None:
        recipe = with_vocabulary_of(start, recipe)
    size, seed = data.vocabulary.size, recipe.training.seed
    require_memory(recipe, size)
    model = (
        build_language_model(recipe.model, vocabulary=size, seed=seed)
        if isinstance(recipe, DecoderRecipe)
        else build_encoder(recipe.model, vocabulary=size, seed=seed)
    )
    new = () if start is None else start_from(start, recipe, model)
    prepare_adaptation(recipe, model, new)
    both = Tokenizers(data.vocabulary, data.vocabulary)
    if isinstance(recipe, DecoderRecipe):
        return DecoderAssembly(recipe, cast(LanguageModel, model), both, data)
    return MaskedAssembly(recipe, cast(TextEncoder, model), both, data)


def _beginnings(
    corpus: TextCorpus, vocabulary: Vocabulary, count: int, *, longest: int | None
) -> list[str]:
    """The first words of up to `count` lines of a text, evenly spread over its beginning.

    Each fills at most half of the `longest` positions that the model has.
    """
    lines: list[str] = []
    seen = 0
    for row in range(len(corpus)):
        ids = corpus.text.ids(row)[: _LOOKED_AT - seen]
        seen += len(ids)
        text = vocabulary.decode(ids.tolist())
        lines += [line.strip() for line in text.split("\n") if line.strip()]
        if seen >= _LOOKED_AT:
            break
    count = min(count, len(lines))
    chosen = [lines[(2 * place + 1) * len(lines) // (2 * count)] for place in range(count)]
    short = [line if len(line) <= _PROMPT_CHARACTERS else _cut(line) for line in chosen]
    if longest is None:
        return short
    return [_with_room(line, vocabulary, longest // 2) for line in short]


def _cut(line: str) -> str:
    """The first words of a line; a word that is too long is cut too."""
    short = line[:_PROMPT_CHARACTERS]
    return short.rpartition(" ")[0] or short


def _with_room(line: str, vocabulary: Vocabulary, most: int) -> str:
    """As much of a line's beginning as a model reads as at most so many tokens."""
    while line and len(prompt_ids(vocabulary, [line])[0]) > most:
        line = line[:-1]
    return line
