"""From a recipe to the parts of a run: text, vocabulary, model, batches, validation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.errors import RecipeError, RunFolderError
from regard.models.build import build_model
from regard.models.transformer import Transformer
from regard.recipes.load import load_recipe
from regard.recipes.recipe import Recipe
from regard.text.batches import Batches
from regard.text.corpus import PreparedData, Tokenizers, prepare_corpus
from regard.text.tokenizer import Tokenizer
from regard.training.interrupts import Interrupts
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.validation import Validator
from regard.weights.run_folder import RunFolder


@dataclass(frozen=True)
class Assembly:
    """The parts of a run, put together and not yet started."""

    recipe: Recipe
    data: PreparedData
    model: Transformer

    def validator(self) -> Validator:
        """What measures the model on the validation text."""
        return Validator(
            self.data.valid.source_lines,
            self.data.valid.target_lines,
            self.data.tokenizers,
            self.recipe.decoding,
            trained_length=self.recipe.data.max_tokens,
            sample_lines=self.recipe.training.sample_lines,
        )

    def trainer(
        self,
        folder: RunFolder,
        *,
        reporter: Reporter,
        interrupts: Interrupts,
        validator: Validator | None,
    ) -> Trainer:
        """What trains the model into a run folder that is open for writing."""
        recipe, data = self.recipe, self.data
        return Trainer(
            self.model,
            Batches(
                data.train,
                data.tokenizers,
                batch_tokens=recipe.training.batch_tokens,
                seed=recipe.training.seed,
                bpe_dropout=recipe.vocabulary.bpe_dropout,
                weights=recipe.data.weights,
            ),
            recipe.training,
            folder,
            validate=None if validator is None else validator.run,
            reporter=reporter,
            interrupts=interrupts,
            line=data.train.line,
            fingerprint=data.train.fingerprint,
        )


def assemble(
    recipe: Recipe,
    folder: Path,
    *,
    vocabularies: RunFolder | None = None,
    say: Callable[[str], None],
) -> Assembly:
    """Read and check the text, and build the model.

    Args:
        recipe: what to put together.
        folder: where the tokenised text goes, or is found when nothing changed.
        vocabularies: a run whose vocabularies are used instead of `recipe.init`'s or new ones.
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
    given = vocabularies or start
    data = prepare_corpus(
        recipe.data,
        recipe.vocabulary,
        folder,
        tokenizers=_tokenizers_of(given) if given is not None else None,
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
    parameters = sum(weight.numel() for weight in model.parameters())
    say(f"model: {parameters:,} parameters")
    return Assembly(recipe, data, model)


def _tokenizers_of(run: RunFolder) -> Tokenizers:
    files = run.tokenizer_files()
    source = Tokenizer.from_bytes(files.source)
    return Tokenizers(source, source if files.joint else Tokenizer.from_bytes(files.target))


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
            hint=f"Train with the recipe of that run: regard train {run.path} --init {run.path} "
            "--out RUN ...",
        )
    weights = run.load_weights()
    wanted = model.state_dict()
    for name in sorted({*wanted, *weights}):
        ours_shape = tuple(wanted[name].shape) if name in wanted else "nothing"
        their_shape = tuple(weights[name].shape) if name in weights else "nothing"
        if ours_shape != their_shape:
            raise RunFolderError(
                f"{name} is {their_shape}, and the recipe wants {ours_shape}", where=str(run.path)
            )
    model.load_state_dict(weights)
