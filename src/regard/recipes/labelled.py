"""The parts of a run of a classifier: texts with labels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from regard.models.build import build_encoder
from regard.models.encoder import TextEncoder
from regard.recipes.adapting import prepare_adaptation
from regard.recipes.assembled import Assembly
from regard.recipes.label_names import names_in
from regard.recipes.memory import require_memory
from regard.recipes.recipe import EncoderRecipe
from regard.recipes.start import start_from, with_vocabulary_of
from regard.text.corpus import Tokenizers
from regard.text.label_batches import LabelBatches
from regard.text.labels import (
    LabelledCorpus,
    PreparedLabels,
    prepare_labels,
)
from regard.training.losses import classification_loss
from regard.training.parts import LabelPart, split_batch
from regard.training.step import Loss
from regard.training.text_validation import LabelValidator
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers


@dataclass(frozen=True)
class LabelAssembly(Assembly):
    """The parts of a run that learns to tell labels."""

    recipe: EncoderRecipe
    model: TextEncoder
    data: PreparedLabels

    @property
    def loss(self) -> Loss:
        """What training minimises."""
        return classification_loss

    @property
    def fingerprint(self) -> str:
        """Names the training data."""
        return self.data.train.texts.fingerprint

    @property
    def measured(self) -> Any:  # noqa: ANN401 - any JSON value
        """The validation text."""
        return self.fingerprint

    def batches(self) -> LabelBatches:
        """The batches of the training text, in their order."""
        return self._batches_of(self.data.train)

    def validator(self) -> LabelValidator:
        """What measures the model on the validation text."""
        return LabelValidator(self._fixed_parts, self.data.names)

    def line(self, row: int) -> tuple[str, int]:
        """The file and the line number of a text."""
        return self.data.train.line(row)

    def try_out(self) -> str:
        """Nothing more: a validation classifies."""
        return "classifying"

    def _fixed_parts(self) -> Iterator[LabelPart]:
        for batch in self._batches_of(self.data.valid).fixed():
            for part in split_batch(batch, self.recipe.training.accumulate):
                yield cast(LabelPart, part)

    def _batches_of(self, corpus: LabelledCorpus) -> LabelBatches:
        return LabelBatches(
            corpus,
            self.data.vocabulary,
            batch_tokens=self.recipe.training.batch_tokens,
            seed=self.recipe.training.seed,
        )


def assemble_labels(
    recipe: EncoderRecipe,
    folder: Path,
    *,
    start: RunFolder | None,
    vocabularies: RunFolder | None,
    expected: str | None,
    say: Callable[[str], None],
) -> LabelAssembly:
    """Read and check the text, and build the model; arguments as of `assemble`.

    `start` is the run that the weights come from. The recipe that comes with the parts names the
    labels.
    """
    # Found first, so that a run that goes on, whose recipe names them, has the same text.
    names = recipe.labels.names or names_in(recipe.labels.train)
    labels = recipe.labels.model_copy(update={"names": names})
    data = prepare_labels(
        labels,
        recipe.vocabulary,
        folder,
        max_tokens=recipe.data.max_tokens,
        vocabulary=open_tokenizers(vocabularies).source if vocabularies is not None else None,
        expected=expected,
        log=say,
    )
    recipe = recipe.model_copy(update={"labels": labels.model_copy(update={"names": data.names})})
    if start is not None:
        recipe = with_vocabulary_of(start, recipe)
    require_memory(recipe, data.vocabulary.size)
    model = build_encoder(
        recipe.model,
        vocabulary=data.vocabulary.size,
        seed=recipe.training.seed,
        classes=len(data.names),
    )
    new = () if start is None else start_from(start, recipe, model)
    prepare_adaptation(recipe, model, new)
    both = Tokenizers(data.vocabulary, data.vocabulary)
    return LabelAssembly(recipe, model, both, data)
