"""The parts of a run of an encoder-decoder: pairs of source and target."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.decoding.translate import translate
from regard.errors import RecipeError
from regard.models.build import build_model
from regard.models.transformer import Transformer
from regard.recipes.adapting import prepare_adaptation
from regard.recipes.assembled import Assembly
from regard.recipes.memory import require_memory
from regard.recipes.recipe import Recipe
from regard.recipes.start import start_from, with_vocabulary_of
from regard.recipes.transfer import parts_of_runs
from regard.text.batches import Batches
from regard.text.corpus import GivenVocabularies, PreparedData, Tokenizers, prepare_corpus
from regard.training.losses import translation_loss
from regard.training.step import Loss
from regard.training.validation import TranslationValidator
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers


@dataclass(frozen=True)
class PairAssembly(Assembly):
    """The parts of a run that learns to translate."""

    recipe: Recipe
    model: Transformer
    data: PreparedData

    @property
    def loss(self) -> Loss:
        """What training minimises."""
        return translation_loss

    @property
    def fingerprint(self) -> str:
        """Names the training data; with weights, the order of the pairs hangs on them too."""
        return " ".join([self.data.train.fingerprint, *map(str, self.recipe.data.weights)])

    @property
    def measured(self) -> Any:  # noqa: ANN401 - any JSON value
        """The validation text and the search."""
        return [asdict(self.data.valid), self.recipe.decoding.model_dump()]

    def batches(self) -> Batches:
        """The batches of the training text, in their order."""
        return Batches(
            self.data.train,
            self.data.tokenizers,
            batch_tokens=self.recipe.training.batch_tokens,
            seed=self.recipe.training.seed,
            bpe_dropout=self.recipe.vocabulary.bpe_dropout,
            weights=self.recipe.data.weights,
        )

    def validator(self) -> TranslationValidator:
        """What measures the model on the validation text."""
        return TranslationValidator(
            self.data.valid.source_lines,
            self.data.valid.target_lines,
            self.data.tokenizers,
            self.recipe.decoding,
            trained_length=self.recipe.data.max_tokens,
            sample_lines=self.recipe.training.sample_lines,
        )

    def line(self, row: int) -> tuple[str, int]:
        """The file and the line number of a pair."""
        return self.data.train.line(row)

    def try_out(self) -> str:
        """Translate a line."""
        translate(
            [self.model],
            [self.data.tokenizers.source],
            self.data.tokenizers.target,
            self.data.valid.source_lines[:1],
            self.recipe.decoding,
            trained_length=self.recipe.data.max_tokens,
        )
        return "a translation"

    @property
    def untrained_remark(self) -> str:
        """How much longer a validation takes while the model is untrained."""
        return " (an untrained model translates at greatest length)"


def assemble_pairs(
    recipe: Recipe,
    folder: Path,
    *,
    start: RunFolder | None,
    vocabularies: RunFolder | None,
    expected: str | None,
    say: Callable[[str], None],
) -> PairAssembly:
    """Read and check the text, and build the model; arguments as of `assemble`.

    `start` is the run that the weights come from.
    """
    if not recipe.data.source and not recipe.data.tsv:
        raise RecipeError(
            "there is no text to train on",
            where="data.source",
            hint="Give two files, --source TEXT --target TEXT, or one, --tsv FILE.",
        )
    if start is not None:
        recipe = with_vocabulary_of(start, recipe)
    given: Tokenizers | GivenVocabularies | None = None
    if vocabularies is not None:
        given = open_tokenizers(vocabularies)
    parts = parts_of_runs(recipe) if given is None else None
    if parts is not None:
        recipe, given = parts.recipe, parts.vocabularies()
    data = prepare_corpus(
        recipe.data,
        recipe.vocabulary,
        folder,
        tokenizers=given,
        expected=expected,
        log=say,
    )
    require_memory(recipe, data.tokenizers.source.size, data.tokenizers.target.size)
    model = build_model(
        recipe.model,
        source_vocabulary=data.tokenizers.source.size,
        target_vocabulary=data.tokenizers.target.size,
        seed=recipe.training.seed,
    )
    new = () if start is None else start_from(start, recipe, model)
    if parts is not None:
        parts.give(model, say)
    prepare_adaptation(recipe, model, new)
    return PairAssembly(recipe, model, data.tokenizers, data)
