"""Checkpoints from elsewhere into run folders, and run folders into formats from elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never, cast

from pydantic import ValidationError

from regard.decoding.config import DecodingConfig
from regard.decoding.generation import GenerationConfig
from regard.errors import CheckpointError, command
from regard.models.config import DecoderConfig, EncoderConfig, ModelConfig, TransformerConfig
from regard.recipes.load import load_recipe
from regard.recipes.names import typed
from regard.recipes.recipe import AnyRecipe, DecoderRecipe, EmbeddingConfig, EncoderRecipe, Recipe
from regard.recipes.write import format_recipe
from regard.text.config import DataConfig, LabelsConfig, TextConfig, VocabularyConfig
from regard.text.vocabulary import read_vocabulary
from regard.weights.foreign import ctranslate2, huggingface
from regard.weights.foreign.families import read
from regard.weights.foreign.model import ForeignModel, OwnModel
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers

ExportFormat = Literal["huggingface", "ctranslate2"]

_NO_VOCABULARY = (
    "A run folder needs one. Put the tokenizer.json of the model beside its weights (for Marian "
    "source.spm, target.spm and vocab.json)."
)
_FEWEST = 260  # that a recipe may ask for; one that came from elsewhere is as it is


@dataclass(frozen=True)
class Brought:
    """What an import read and what it made of it, for a person."""

    run: Path
    recipe: AnyRecipe
    origin: str
    parameters: int
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """What was read, what was left out, what it is now, and what to type next."""
        family = {"seq2seq": "encoder-decoder"}.get(
            self.recipe.family, f"{self.recipe.family}-only"
        )
        run = typed(self.run)
        return [
            f"read: {self.origin}",
            *(f"note: {note}" for note in self.notes),
            f"now: {family} model of {self.parameters:,} parameters in float32",
            f"run folder: {self.run}",
            "next:",
            *(f"  {words}" for words in (*_uses(run, self.recipe), command("info", run))),
        ]


def import_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    allow_pickle: bool = False,
    source_format: str | None = None,
) -> Brought:
    """Make a run folder of a checkpoint from elsewhere.

    It is read in full before anything is written; a failed import leaves nothing behind.

    Args:
        path: the checkpoint: a folder, or for some formats a file.
        out: the run folder to make.
        allow_pickle: whether torch's weights-only loader may open a file of torch.save.
        source_format: what it is, where it doesn't say so itself.

    Raises:
        CheckpointError: it is missing, damaged, or holds what no model here can honour.
        ModelError: its vocabulary needs a package that is missing.
        RunFolderError: `out` holds a run or other things, or can't be written.
    """
    found = read(path, source_format=source_format, allow_pickle=allow_pickle)
    if found.vocabularies is None:
        raise CheckpointError(
            "there is no vocabulary with it that regard can read",
            where=str(path),
            hint=_NO_VOCABULARY,
        )
    source, target = found.vocabularies
    recipe = _recipe(found, source, target)
    with RunFolder.create(out, whole=True) as folder:
        folder.write_recipe(format_recipe(recipe))
        folder.write_tokenizers(source, target)
        folder.write_model(found.weights, {"made": "import", "of": found.origin})
    parameters = sum({w.data_ptr(): w.numel() for w in found.weights.values()}.values())
    return Brought(Path(out), recipe, found.origin, parameters, found.notes)


def export_run(run: str | Path, out: str | Path, format_name: ExportFormat) -> tuple[str, ...]:
    """Write the model of a run folder in a format from elsewhere; return remarks on it.

    Args:
        run: the run folder.
        out: a folder that is not there yet.
        format_name: which format.

    Raises:
        ModelError: the format has no place for a setting of the model, which is named.
        CheckpointError: there is something at `out` already, or a package is missing.
        RunFolderError: the run is damaged, or `out` can't be written.
    """
    model = _own(Path(run))
    match format_name:
        case "huggingface":
            return huggingface.write(model, Path(out)).notes
        case "ctranslate2":
            ctranslate2.export(model, Path(out))
            return ()
        case _ as never:
            assert_never(never)


def _own(run: Path) -> OwnModel[ModelConfig]:
    """A run's model, verified, ready to be written elsewhere."""
    folder, recipe = RunFolder.open(run), load_recipe(run)
    vocabularies = open_tokenizers(folder)
    return OwnModel(
        config=recipe.model,
        weights=folder.load_weights(),
        source=vocabularies.source,
        target=vocabularies.target,
        max_tokens=recipe.data.max_tokens,
        beam=recipe.decoding.beam if isinstance(recipe, Recipe) else 1,
        labels=recipe.labels.names if isinstance(recipe, EncoderRecipe) else (),
    )


def _recipe(found: ForeignModel, source: bytes, target: bytes | None) -> AnyRecipe:
    """What a run of the model would say of itself."""
    size = read_vocabulary(source, name=found.origin).size
    build: dict[str, Callable[[], AnyRecipe]] = {
        "seq2seq": lambda: _seq2seq(found, size, target),
        "decoder": lambda: _decoder(found, size),
        "encoder": lambda: _encoder(found, size),
    }
    try:
        return build[found.family]()
    except ValidationError as error:
        said = "; ".join(mistake["msg"].removeprefix("Value error, ") for mistake in error.errors())
        raise CheckpointError(f"its settings make no recipe: {said}", where=found.origin) from None


def _seq2seq(found: ForeignModel, size: int, target: bytes | None) -> Recipe:
    config = cast(TransformerConfig, found.config)
    joint = target is None or config.tying == "three_way"
    longest = (
        found.max_tokens if config.longest is None else min(found.max_tokens, config.longest - 1)
    )
    return Recipe(
        description=_description(found),
        data=DataConfig(max_tokens=longest),
        vocabulary=_vocabulary(size, joint=joint),
        model=config.resolved(),
        decoding=DecodingConfig(**found.decoding),
    )


def _decoder(found: ForeignModel, size: int) -> DecoderRecipe:
    return DecoderRecipe(
        description=_description(found),
        data=TextConfig(max_tokens=found.max_tokens),
        vocabulary=_vocabulary(size),
        model=cast(DecoderConfig, found.config).resolved(),
        generation=GenerationConfig(**found.decoding),
    )


def _encoder(found: ForeignModel, size: int) -> EncoderRecipe:
    return EncoderRecipe(
        description=_description(found),
        data=TextConfig(max_tokens=found.max_tokens),
        vocabulary=_vocabulary(size),
        model=cast(EncoderConfig, found.config).resolved(),
        labels=LabelsConfig(names=found.labels),
        embedding=EmbeddingConfig(**found.embedding),
    )


def _description(found: ForeignModel) -> str:
    return f"Imported: {found.origin}"


def _vocabulary(size: int, *, joint: bool = True) -> VocabularyConfig:
    return VocabularyConfig(kind="foreign", size=max(size, _FEWEST), joint=joint)


def _uses(run: str, recipe: AnyRecipe) -> list[str]:
    """What the model of a run is good for, as commands."""
    match recipe:
        case Recipe():
            return [f"{command('translate', run)} < in.txt > out.txt"]
        case DecoderRecipe():
            return [command("generate", run, "--prompt", "Once upon a time")]
        case EncoderRecipe() if recipe.labels.names:
            return [f"{command('classify', run)} < lines.txt"]
        case EncoderRecipe():
            return [f"{command('embed', run, '--out', 'vectors.npy')} < lines.txt"]
        case _ as never:
            assert_never(never)
