"""From a run folder to its recipe, vocabulary and model, or a refusal that says what does not fit.

Nothing here imports torch: the engine needs none, and PyTorch's model is made when it is asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from regard.counts import counted
from regard.errors import RunFolderError
from regard.recipes.load import load_recipe_of, recipe_class
from regard.recipes.recipe import AnyRecipe, DecoderRecipe, EncoderRecipe, Recipe
from regard.serving.lazy import LazyModel
from regard.serving.place import Place
from regard.signals import load_torch
from regard.text.corpus import Tokenizers
from regard.text.vocabulary import Vocabulary
from regard.weights.layout import PACKED
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers

if TYPE_CHECKING:
    from torch import nn

    from regard.models.decoder import LanguageModel
    from regard.models.encoder import TextEncoder
    from regard.models.transformer import Transformer
    from regard.weights.packed import PackedWeights

    Model = TypeVar("Model", bound=nn.Module)
else:
    LanguageModel = TextEncoder = Transformer = PackedWeights = object
    Model = TypeVar("Model")

# ruff: noqa: PLC0415 - what makes PyTorch's models is imported when one is asked for

RunPath = str | Path

_COPY_AGAIN = "Copy the folder again from where it came from, whole."


@dataclass(frozen=True)
class OpenedRun:
    """What is needed of a run to translate with it."""

    path: Path
    recipe: Recipe
    tokenizers: Tokenizers
    held: LazyModel[Transformer]
    packed: PackedWeights | None = None  # what the engine uses in the place of weights

    @property
    def model(self) -> Transformer:
        """PyTorch's model, in eval mode; made when first asked for, as are the others' here."""
        return self.held.model


def open_run(path: RunPath, place: Place) -> OpenedRun:
    """Open a run folder, every file verified.

    Args:
        path: the run folder.
        place: where PyTorch is to put its model.

    Raises:
        RunFolderError: it is no whole run folder (which file is missing or damaged), or its
            recipe, vocabulary and weights do not belong together.
    """
    folder = RunFolder.open(path)
    recipe = load_recipe_of(Recipe, Path(path))
    tokenizers = open_tokenizers(folder)
    packed = _packed(folder, recipe)
    if packed is None:
        _require_vocabularies(folder, tokenizers)

    def make() -> Transformer:
        load_torch("regard.serving.models")
        from regard.serving.models import translation_model

        return translation_model(folder, recipe, tokenizers, place)

    return OpenedRun(folder.path, recipe, tokenizers, _held(folder, make, place), packed)


@dataclass(frozen=True)
class OpenedLanguageModel:
    """What is needed of a run to go on with texts."""

    path: Path
    recipe: DecoderRecipe
    vocabulary: Vocabulary
    held: LazyModel[LanguageModel]
    packed: PackedWeights | None = None

    @property
    def model(self) -> LanguageModel:
        """PyTorch's model."""
        return self.held.model


def open_language_model(path: RunPath, place: Place) -> OpenedLanguageModel:
    """Open the run folder of a decoder, as `open_run` does.

    Raises:
        As `open_run`.
    """
    folder = RunFolder.open(path)
    recipe = load_recipe_of(DecoderRecipe, Path(path))
    vocabulary = _only_vocabulary(folder)

    def make() -> LanguageModel:
        load_torch("regard.serving.models")
        from regard.serving.models import language_model

        return language_model(folder, recipe, vocabulary.size, place)

    packed = _packed(folder, recipe)
    return OpenedLanguageModel(folder.path, recipe, vocabulary, _held(folder, make, place), packed)


@dataclass(frozen=True)
class OpenedEncoder:
    """What is needed of a run to embed, fill and classify."""

    path: Path
    recipe: EncoderRecipe
    vocabulary: Vocabulary
    held: LazyModel[TextEncoder]
    packed: PackedWeights | None = None

    @property
    def model(self) -> TextEncoder:
        """PyTorch's model."""
        return self.held.model


def open_encoder(path: RunPath, place: Place) -> OpenedEncoder:
    """Open the run folder of an encoder, as `open_run` does.

    Raises:
        As `open_run`.
    """
    folder = RunFolder.open(path)
    recipe = load_recipe_of(EncoderRecipe, Path(path))
    vocabulary = _only_vocabulary(folder)

    def make() -> TextEncoder:
        load_torch("regard.serving.models")
        from regard.serving.models import text_encoder

        return text_encoder(folder, recipe, vocabulary.size, place)

    packed = _packed(folder, recipe)
    return OpenedEncoder(folder.path, recipe, vocabulary, _held(folder, make, place), packed)


Opened = OpenedRun | OpenedLanguageModel | OpenedEncoder


def open_any(path: RunPath, place: Place) -> Opened:
    """Open a run folder of whatever family, as `open_run` does.

    Raises:
        As `open_run`.
    """
    kind = recipe_class(Path(path))
    if kind is Recipe:
        return open_run(path, place)
    return (open_language_model if kind is DecoderRecipe else open_encoder)(path, place)


def require_same_target(runs: list[OpenedRun]) -> None:
    """Refuse an ensemble whose models do not speak of the same target tokens.

    Raises:
        RunFolderError: names the first run and one that differs from it.
    """
    first = runs[0]
    ours = first.tokenizers.target
    for run in runs[1:]:
        theirs = run.tokenizers.target
        if ours.pieces(range(ours.size)) != theirs.pieces(range(theirs.size)):
            problem = (
                f"its target vocabulary ({theirs.size:,} entries) is not that of "
                f"{first.path} ({ours.size:,} entries)"
            )
        elif _control(ours) != _control(theirs):
            problem = (
                f"its target vocabulary has other start, end or control tokens than that of "
                f"{first.path}"
            )
        else:
            continue
        raise RunFolderError(
            problem,
            where=str(run.path),
            hint="An ensemble averages probabilities of tokens, so the runs must share them: "
            "train one with --init of the other.",
        )


def _control(vocabulary: Vocabulary) -> tuple[int, int, frozenset[int], frozenset[int]]:
    """What a search knows of a vocabulary beside its pieces."""
    return vocabulary.start_id, vocabulary.eos_id, vocabulary.end_ids, vocabulary.control_ids


def _held(folder: RunFolder, make: Callable[[], Model], place: Place) -> LazyModel[Model]:
    """The model of a folder, which must not have another by the time it is asked for."""
    before = folder.sha256(folder.model_file)

    def make_unchanged() -> Model:
        if folder.sha256(folder.model_file) != before:
            raise RunFolderError(
                "the run has another model since it was opened",
                where=str(folder.path),
                hint="Open it again.",
            )
        return make()

    return LazyModel(make_unchanged, folder.load_arrays, on_cpu=place.on_cpu)


def _packed(folder: RunFolder, recipe: AnyRecipe) -> PackedWeights | None:
    """The weights that are packed for the engine, where they are; they must be of the family."""
    if not folder.is_packed:
        return None
    packed = folder.load_packed()
    family = packed.notes.get("family", recipe.family)
    if family != recipe.family:
        raise RunFolderError(
            f'its weights were packed for a run of family = "{family}", and its recipe has '
            f'"{recipe.family}"',
            where=str(folder.path / PACKED),
            hint="Make the folder again with regard quantize.",
        )
    return packed


def _only_vocabulary(folder: RunFolder) -> Vocabulary:
    """That of a model of one vocabulary."""
    vocabulary = open_tokenizers(folder).source
    if not folder.is_packed:
        shapes = folder.weight_shapes()
        _require_rows(folder.path, "tokenizer.json", vocabulary.size, "embedding.weight", shapes)
    return vocabulary


def _require_vocabularies(folder: RunFolder, tokenizers: Tokenizers) -> None:
    shapes = folder.weight_shapes()
    target = "target_embedding.weight"
    if target not in shapes:
        target = "source_embedding.weight"
    source = "source_embedding.weight"
    for side, name, size in (
        ("source", source, tokenizers.source.size),
        ("target", target, tokenizers.target.size),
    ):
        file = "tokenizer.json" if tokenizers.joint else f"tokenizer.{side}.json"
        _require_rows(folder.path, file, size, name, shapes)


def _require_rows(
    path: Path, file: str, size: int, name: str, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    if shapes.get(name) and shapes[name][0] != size:
        raise RunFolderError(
            f"the vocabulary does not fit the weights: {file} has {size:,} "
            f"entries, and {name} has {counted(shapes[name][0], 'row')}",
            where=str(path),
            hint=_COPY_AGAIN,
        )
