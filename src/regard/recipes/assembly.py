"""From a recipe to the parts of a run: text, vocabulary, model, batches, validation."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.errors import RecipeError, RunFolderError, command
from regard.models.build import build_model
from regard.models.count import parameter_count
from regard.models.transformer import Transformer
from regard.recipes.load import load_recipe
from regard.recipes.recipe import Recipe
from regard.text.batches import Batches
from regard.text.corpus import PreparedData, prepare_corpus
from regard.training.feed import BatchSource
from regard.training.interrupts import Interrupts
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.validation import TranslationValidator, Validator
from regard.weights.fit import misfits
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers


@dataclass(frozen=True)
class Assembly:
    """The parts of a run, put together and not yet started."""

    recipe: Recipe
    data: PreparedData
    model: Transformer

    def validator(self) -> Validator:
        """What measures the model on the validation text."""
        return TranslationValidator(
            self.data.valid.source_lines,
            self.data.valid.target_lines,
            self.data.tokenizers,
            self.recipe.decoding,
            trained_length=self.recipe.data.max_tokens,
            sample_lines=self.recipe.training.sample_lines,
        )

    def _measure(self) -> str:
        """Names what validations measure: figures of another text or search can't be compared."""
        measured = [asdict(self.data.valid), self.recipe.decoding.model_dump()]
        return hashlib.sha256(json.dumps(measured).encode()).hexdigest()

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

    def trainer(
        self,
        folder: RunFolder,
        batches: BatchSource,
        *,
        reporter: Reporter,
        interrupts: Interrupts,
        validator: Validator | None,
    ) -> Trainer:
        """What trains the model on the batches into a run folder that is open for writing."""
        recipe, data = self.recipe, self.data
        return Trainer(
            self.model,
            batches,
            recipe.training,
            folder,
            validate=None if validator is None else validator.run,
            reporter=reporter,
            interrupts=interrupts,
            line=data.train.line,
            # With weights, the order of the pairs hangs on them too.
            fingerprint=" ".join([data.train.fingerprint, *map(str, recipe.data.weights)]),
            measure=self._measure(),
        )


def assemble(
    recipe: Recipe,
    folder: Path,
    *,
    vocabularies: RunFolder | None = None,
    expected: str | None = None,
    say: Callable[[str], None],
) -> Assembly:
    """Read and check the text, and build the model.

    Args:
        recipe: what to put together.
        folder: where the tokenised text goes, or is found when nothing changed.
        vocabularies: a run whose vocabularies are used instead of `recipe.init`'s or new ones.
        expected: the fingerprint that the text must have, where a run goes on with it.
        say: is told what was found, a line at a time.

    Raises:
        RecipeError: the recipe names no text, or its model is not that of `recipe.init`.
        DataError: the text is missing, damaged, or does not match.
        RunFolderError: `recipe.init` is no whole run.
    """
    if not recipe.data.source and not recipe.data.tsv:
        raise RecipeError(
            "there is no text to train on",
            where="data.source",
            hint="Give two files, --source TEXT --target TEXT, or one, --tsv FILE.",
        )
    start = RunFolder.open(recipe.init) if recipe.init and vocabularies is None else None
    if start is not None:
        recipe = _with_vocabulary_of(start, recipe)
    given = vocabularies or start
    data = prepare_corpus(
        recipe.data,
        recipe.vocabulary,
        folder,
        tokenizers=open_tokenizers(given) if given is not None else None,
        expected=expected,
        log=say,
    )
    model = build_model(
        recipe.model,
        source_vocabulary=data.tokenizers.source.size,
        target_vocabulary=data.tokenizers.target.size,
        seed=recipe.training.seed,
    )
    if start is not None:
        _start_from(start, recipe, model)
        say(f"model: weights and vocabulary of {recipe.init}")
    parameters = parameter_count(
        recipe.model, data.tokenizers.source.size, data.tokenizers.target.size
    )
    say(f"model: {parameters:,} parameters")
    return Assembly(recipe, data, model)


def _with_vocabulary_of(run: RunFolder, recipe: Recipe) -> Recipe:
    """The recipe with the vocabulary's settings of a run, so that it says what is used."""
    theirs = load_recipe(run.path).vocabulary
    kept = {"bpe_dropout": recipe.vocabulary.bpe_dropout if theirs.kind == "bpe" else 0.0}
    return recipe.model_copy(update={"vocabulary": theirs.model_copy(update=kept)})


def _start_from(run: RunFolder, recipe: Recipe, model: Transformer) -> None:
    """Give the model the weights of a run that has the same shape."""
    theirs = load_recipe(run.path).model.resolved().model_dump()
    ours = recipe.model.resolved().model_dump()
    free = {"dropout", "attention_dropout", "activation_dropout"}
    differing = [key for key in ours if key not in free and ours[key] != theirs[key]]
    if differing:
        key = differing[0]
        raise RecipeError(
            f"model.{key} = {ours[key]} here, and {theirs[key]} in the run to start from"
            + (f" (and {len(differing) - 1} more keys differ)" if len(differing) > 1 else ""),
            where=f"--init {run.path}",
            hint="Train with the recipe of that run: "
            + command("train", run.path, "--init", run.path, "--out", "RUN"),
        )
    weights = run.load_weights()
    for misfit in misfits(weights, model.state_dict()):
        raise RunFolderError(
            f"{misfit.name} is {misfit.found}, and the recipe wants {misfit.wanted}",
            where=str(run.path),
        )
    model.load_state_dict(weights)
