"""An encoder-decoder whose encoder or decoder starts as that of another family's run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from torch import nn

from regard.counts import counted
from regard.errors import RecipeError, RunFolderError
from regard.models.config import LayerConfig
from regard.recipes.explain import explain
from regard.recipes.load import load_recipe
from regard.recipes.recipe import DecoderRecipe, EncoderRecipe, Recipe
from regard.recipes.refusals import SHARED
from regard.recipes.start import with_dropout_of
from regard.shapes import Tensor
from regard.text.corpus import GivenVocabularies
from regard.weights.fit import misfits
from regard.weights.run_folder import RunFolder
from regard.weights.transfer import decoder_part, encoder_part
from regard.weights.vocabularies import open_tokenizers


@dataclass(frozen=True)
class Parts:
    """The runs that an encoder-decoder takes its parts from, and the recipe with their shape."""

    recipe: Recipe
    encoder: RunFolder | None
    decoder: RunFolder | None

    def vocabularies(self) -> GivenVocabularies:
        """The vocabularies of the runs, each for its side."""
        return GivenVocabularies(
            source=None if self.encoder is None else open_tokenizers(self.encoder).source,
            target=None if self.decoder is None else open_tokenizers(self.decoder).source,
        )

    def give(self, model: nn.Module, say: Callable[[str], None]) -> None:
        """Put the weights of the runs into the model.

        Raises:
            RunFolderError: the weights of a run are not those of its recipe.
        """
        config = self.recipe.model
        if self.encoder is not None:
            scale = config.d_model**0.5 if config.embedding_scale else 1.0
            _give(encoder_part(self.encoder.load_weights(), scale=scale), model, self.encoder)
            say(f"model: encoder, its shape and vocabulary of {self.encoder.path}")
        if self.decoder is not None:
            weights = decoder_part(self.decoder.load_weights(), tied=config.tying != "none")
            _give(weights, model, self.decoder)
            say(f"model: decoder, its shape and vocabulary of {self.decoder.path}")


def parts_of_runs(recipe: Recipe) -> Parts | None:
    """The runs that a recipe names for its encoder and its decoder; None if it names neither.

    Raises:
        RecipeError: a run is of another family, the two don't go together, or the recipe's
            vocabulary and tying leave no place for them.
        RunFolderError: a run is missing, damaged, or packed for the engine.
    """
    if not recipe.init_encoder and not recipe.init_decoder:
        return None
    encoder = RunFolder.open(recipe.init_encoder) if recipe.init_encoder else None
    decoder = RunFolder.open(recipe.init_decoder) if recipe.init_decoder else None
    for run in filter(None, (encoder, decoder)):
        run.require_plain()
    changes: dict[str, object] = {}
    vocabulary = None
    if encoder is not None:
        theirs = load_recipe(Path(recipe.init_encoder))
        if not isinstance(theirs, EncoderRecipe):
            raise _other_family("--init-encoder", encoder, theirs.family, "encoder")
        vocabulary = with_dropout_of(
            recipe.vocabulary, theirs.vocabulary, where=f"--init-encoder {encoder.path}"
        )
        changes |= _shape(theirs.model) | {
            "encoder_layers": theirs.model.num_layers,
            "encoder": theirs.model.encoder,
        }
    if decoder is not None:
        theirs = load_recipe(Path(recipe.init_decoder))
        if not isinstance(theirs, DecoderRecipe):
            raise _other_family("--init-decoder", decoder, theirs.family, "decoder")
        if theirs.model.window:
            raise RecipeError(
                f"the run attends to a window of {counted(theirs.model.window, 'token')}, which no "
                "decoder of an encoder-decoder does",
                where=f"--init-decoder {decoder.path}",
            )
        vocabulary = with_dropout_of(
            recipe.vocabulary, theirs.vocabulary, where=f"--init-decoder {decoder.path}"
        )
        shape = _shape(theirs.model)
        _require_same(shape, changes, encoder, decoder)
        changes |= shape | {
            "decoder_layers": theirs.model.num_layers,
            "decoder": theirs.model.decoder,
            "output_bias": theirs.model.output_bias,
        }
        _require_tying(recipe, theirs, both=encoder is not None)
    model = recipe.model.model_copy(update=changes)
    both = encoder is not None and decoder is not None
    joint = recipe.vocabulary.joint and not both
    if vocabulary is None or not (joint or both):  # one part's is made anew
        vocabulary = recipe.vocabulary
    changed = {"model": model, "vocabulary": vocabulary.model_copy(update={"joint": joint})}
    return Parts(_checked(recipe.model_copy(update=changed)), encoder, decoder)


def _checked(recipe: Recipe) -> Recipe:
    """The recipe, if its own settings go together with the shape that came from the runs.

    Raises:
        RecipeError: they don't.
    """
    try:
        return Recipe.model_validate(recipe.model_dump())
    except ValidationError as error:
        came = ", ".join(filter(None, (recipe.init_encoder, recipe.init_decoder)))
        raise explain(error, Recipe, source=f"with the shape of {came}", changed=()) from None


def _shape(model: LayerConfig) -> dict[str, object]:
    """What the layers and the embeddings of an encoder-decoder must have of a model's."""
    return {key: getattr(model.resolved(), key) for key in SHARED}


def _require_same(
    decoder_shape: Mapping[str, object],
    encoder_shape: Mapping[str, object],
    encoder: RunFolder | None,
    decoder: RunFolder,
) -> None:
    for key, value in decoder_shape.items():
        if encoder is not None and encoder_shape[key] != value:
            raise RecipeError(
                f"model.{key} is {value} there, and {encoder_shape[key]} in {encoder.path}: "
                "one recipe has one of them",
                where=f"--init-decoder {decoder.path}",
                hint="Train both with the same shape, or start one of the two parts anew.",
            )


def _require_tying(recipe: Recipe, theirs: DecoderRecipe, *, both: bool) -> None:
    """Refuse a tying in which the matrices of the run have no place of their own."""
    tying = recipe.model.tying
    if not theirs.model.tied and tying != "none":
        raise RecipeError(
            f'the run has a projection of its own, and model.tying = "{tying}" here',
            where="--init-decoder",
            hint="Add --set model.tying=none --set vocabulary.joint=false.",
        )
    if both and tying == "three_way":
        raise RecipeError(
            'model.tying = "three_way" makes one matrix of the embeddings of both runs',
            where="--init-decoder",
            hint="Add --set model.tying=two_way --set vocabulary.joint=false.",
        )


def _other_family(option: str, run: RunFolder, family: str, wanted: str) -> RecipeError:
    return RecipeError(
        f'expected a run of the family "{wanted}", got one of "{family}"',
        where=f"{option} {run.path}",
    )


def _give(weights: dict[str, Tensor], model: nn.Module, run: RunFolder) -> None:
    state: dict[str, Tensor] = model.state_dict()
    if "target_embedding.weight" in weights and "target_embedding.weight" not in state:
        # Tied three ways: the one matrix has the source's name.
        weights["source_embedding.weight"] = weights.pop("target_embedding.weight")
    for misfit in misfits(weights, {name: state[name] for name in weights if name in state}):
        raise RunFolderError(
            f"{misfit.name} is {misfit.found}, and the model wants {misfit.wanted}",
            where=str(run.path),
        )
    model.load_state_dict(weights, strict=False)
