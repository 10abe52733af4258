"""From a run folder to its model and vocabulary, or a refusal that says what does not fit."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regard.errors import RegardError, RunFolderError
from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import DecoderRecipe, EncoderRecipe, Recipe
from regard.shapes import Tensor
from regard.text.corpus import Tokenizers
from regard.text.vocabulary import Vocabulary
from regard.training.devices import choose_device
from regard.weights.fit import misfits
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers

RunPath = str | Path

_SHOWN = 3
_MOST_THREADS = 1024
_COPY_AGAIN = "Copy the folder again from where it came from, whole."


@dataclass(frozen=True)
class OpenedRun:
    """What is needed of a run to translate with it; the model is in eval mode."""

    path: Path
    recipe: Recipe
    tokenizers: Tokenizers
    model: Transformer


def open_run(path: RunPath, device: torch.device) -> OpenedRun:
    """Open a run folder, every file verified, and put its model on a device.

    Raises:
        RunFolderError: it is no whole run folder (which file is missing or damaged), or its
            recipe, vocabulary and weights do not belong together.
    """
    folder = RunFolder.open(path)
    recipe = load_recipe_of(Recipe, Path(path))
    tokenizers = open_tokenizers(folder)
    weights = folder.load_weights()
    _require_vocabularies(folder, tokenizers, weights)
    model = build_model(
        recipe.model,
        source_vocabulary=tokenizers.source.size,
        target_vocabulary=tokenizers.target.size,
        seed=recipe.training.seed,
    )
    _fill(model, weights, folder.path)
    return OpenedRun(folder.path, recipe, tokenizers, model.to(device).eval())


@dataclass(frozen=True)
class OpenedLanguageModel:
    """What is needed of a run to go on with texts; the model is in eval mode."""

    path: Path
    recipe: DecoderRecipe
    vocabulary: Vocabulary
    model: LanguageModel


def open_language_model(path: RunPath, device: torch.device) -> OpenedLanguageModel:
    """Open the run folder of a decoder, as `open_run` does.

    Raises:
        As `open_run`.
    """
    folder = RunFolder.open(path)
    recipe = load_recipe_of(DecoderRecipe, Path(path))
    vocabulary, weights = _vocabulary_and_weights(folder)
    model = build_language_model(
        recipe.model, vocabulary=vocabulary.size, seed=recipe.training.seed
    )
    _fill(model, weights, folder.path)
    return OpenedLanguageModel(folder.path, recipe, vocabulary, model.to(device).eval())


@dataclass(frozen=True)
class OpenedEncoder:
    """What is needed of a run to embed, fill and classify; the model is in eval mode."""

    path: Path
    recipe: EncoderRecipe
    vocabulary: Vocabulary
    model: TextEncoder


def open_encoder(path: RunPath, device: torch.device) -> OpenedEncoder:
    """Open the run folder of an encoder, as `open_run` does.

    Raises:
        As `open_run`.
    """
    folder = RunFolder.open(path)
    recipe = load_recipe_of(EncoderRecipe, Path(path))
    vocabulary, weights = _vocabulary_and_weights(folder)
    model = build_encoder(
        recipe.model,
        vocabulary=vocabulary.size,
        seed=recipe.training.seed,
        classes=len(recipe.labels.names),
    )
    _fill(model, weights, folder.path)
    return OpenedEncoder(folder.path, recipe, vocabulary, model.to(device).eval())


def _vocabulary_and_weights(folder: RunFolder) -> tuple[Vocabulary, dict[str, Tensor]]:
    """Those of a model of one vocabulary."""
    vocabulary = open_tokenizers(folder).source
    weights = folder.load_weights()
    _require_rows(folder.path, "tokenizer.json", vocabulary.size, "embedding.weight", weights)
    return vocabulary, weights


def _fill(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    _require_shapes(path, model.state_dict(), weights)
    model.load_state_dict(weights)


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


def prepare_device(wanted: str, threads: int | None) -> torch.device:
    """As `find_device`; and use so many CPU threads, in the whole process, if it is said.

    Raises:
        As `find_device`; and RegardError for a number of threads that no machine has.
    """
    if threads is not None:
        if not 1 <= threads <= _MOST_THREADS:
            raise RegardError(
                f"expected a whole number from 1 to {_MOST_THREADS:,}, got {threads:,}",
                where="threads",
            )
        torch.set_num_threads(threads)
    return find_device(wanted)


def find_device(wanted: str) -> torch.device:
    """The device for `auto`, `cpu`, `cuda` or `cuda:1`.

    Raises:
        RegardError: it is none of these, or this machine does not have it.
    """
    if wanted == "auto":
        return choose_device("auto")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in {"cpu", "cuda"}:
        raise RegardError(
            f'expected "auto", "cpu", "cuda" or "cuda:N", got "{wanted}"', where="device"
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise RegardError(
            f'"{wanted}" is not there: torch sees {count or "no"} CUDA GPU(s) on this machine',
            where="device",
            hint='Use "auto" or "cpu".',
        )
    return device


def _require_vocabularies(
    folder: RunFolder, tokenizers: Tokenizers, weights: dict[str, Tensor]
) -> None:
    target = "target_embedding.weight"
    if target not in weights:
        target = "source_embedding.weight"
    source = "source_embedding.weight"
    for side, name, size in (
        ("source", source, tokenizers.source.size),
        ("target", target, tokenizers.target.size),
    ):
        file = "tokenizer.json" if tokenizers.joint else f"tokenizer.{side}.json"
        _require_rows(folder.path, file, size, name, weights)


def _require_rows(path: Path, file: str, size: int, name: str, weights: dict[str, Tensor]) -> None:
    if name in weights and len(weights[name]) != size:
        raise RunFolderError(
            f"the vocabulary does not fit the weights: {file} has {size:,} "
            f"entries, and {name} has {len(weights[name]):,} rows",
            where=str(path),
            hint=_COPY_AGAIN,
        )


def _require_shapes(path: Path, wanted: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    differing = [
        f"{misfit.name} is {misfit.found}, and the recipe wants {misfit.wanted}"
        for misfit in misfits(weights, wanted)
    ]
    if differing:
        more = len(differing) - _SHOWN
        raise RunFolderError(
            "the weights do not fit the recipe: "
            + "; ".join(differing[:_SHOWN])
            + (f"; and {more} more" if more > 0 else ""),
            where=str(path),
            hint=_COPY_AGAIN,
        )
