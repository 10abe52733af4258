"""What a model is made of, for `regard info`: parts, shapes, parameters, where it is from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.counts import counted
from regard.models.config import (
    DecoderConfig,
    ModelConfig,
    TransformerConfig,
    mixers_in_words,
)
from regard.models.count import Part, idle_parameters, parameter_table, total_parameters
from regard.nn.config import NoScalingConfig, RotaryConfig
from regard.recipes.load import load_recipe
from regard.recipes.names import resolve
from regard.recipes.recipe import AnyRecipe, EncoderRecipe, Recipe
from regard.signals import load
from regard.weights.adapted import base_path, is_adapter
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model, trained or not yet, as `regard info` shows it.

    `origin` says where it is from, and `notes` how its weights came about (empty for a recipe).
    A model of one side has its one vocabulary for both.
    """

    name: str
    origin: str
    recipe: AnyRecipe
    source_vocabulary: int
    target_vocabulary: int
    parts: list[Part]
    notes: dict[str, str]

    @property
    def parameters(self) -> int:
        """All parameters, a tied matrix counted once."""
        return total_parameters(self.parts)

    @property
    def active_parameters(self) -> int:
        """The parameters without the experts that a token is not given to."""
        return self.parameters - idle_parameters(self.recipe.model)


def describe(name_or_path: str, overrides: Sequence[str] = ()) -> Description:
    """The model of a recipe or of a run; torch is not needed for a recipe.

    Vocabularies are as large as the recipe asks, or in a run as its tokenizers are.

    Raises:
        RecipeError: there is no such recipe, or it is wrong.
        RunFolderError: the run folder is damaged.
        ModelError: three-way tying with vocabularies of two sizes.
    """
    recipe = load_recipe(name_or_path, overrides)
    source_vocabulary = target_vocabulary = recipe.vocabulary.size
    notes: dict[str, str] = {}
    named = resolve(name_or_path)
    match named.kind:
        case "preset":
            origin = "a recipe that comes with regard"
        case "file":
            origin = "a recipe file"
        case "run":
            origin = "a run folder"
            run = RunFolder.open(named.path, model=False)
            tokenizers = open_tokenizers(run)
            source_vocabulary, target_vocabulary = tokenizers.source.size, tokenizers.target.size
            notes = {"model": "none saved yet"}
            if run.has_model:
                load("numpy")  # which reading them imports
                notes = run.model_notes()
    return Description(
        name=name_or_path,
        origin=origin,
        recipe=recipe,
        source_vocabulary=source_vocabulary,
        target_vocabulary=target_vocabulary,
        parts=parts_of(recipe, source_vocabulary, target_vocabulary),
        notes=notes,
    )


def parts_of(recipe: AnyRecipe, source_vocabulary: int, target_vocabulary: int) -> list[Part]:
    """The parts of a recipe's model, with vocabularies of these sizes.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.
    """
    if isinstance(recipe, Recipe):
        return parameter_table(recipe.model, source_vocabulary, target_vocabulary)
    classes = len(recipe.labels.names) if isinstance(recipe, EncoderRecipe) else 0
    return parameter_table(recipe.model, source_vocabulary, classes=classes)


def to_json(description: Description) -> str:
    """The description as JSON text; `parameters` is the number of all."""
    return json.dumps(
        {
            "name": description.name,
            "origin": description.origin,
            "description": description.recipe.description,
            "family": description.recipe.family,
            "parameters": description.parameters,
            "active_parameters": description.active_parameters,
            "source_vocabulary": description.source_vocabulary,
            "target_vocabulary": description.target_vocabulary,
            "model": description.recipe.model.resolved().model_dump(mode="json"),
            "parts": [
                {
                    "name": part.name,
                    "shape": part.shape,
                    "each": part.each,
                    "copies": part.copies,
                    "parameters": part.parameters,
                }
                for part in description.parts
            ],
            "notes": description.notes,
        },
        indent=2,
        ensure_ascii=False,
    )


def format_description(description: Description) -> str:
    """The description as text: what it is, then a table of its parts."""
    recipe = description.recipe
    facts = {
        description.name: description.origin,
        "about": recipe.description,
        "vocabulary": _vocabulary(description),
        "model": _model(recipe.model),
        **_weights(description.notes),
        "parameters": f"{description.parameters:,} "
        f"({description.parameters * 4 / 2**20:,.1f} MiB in float32){_active(description)}",
    }
    width = max(map(len, facts))
    head = [f"{name:{width}}  {value}" for name, value in facts.items() if value]
    return "\n".join([*head, "", *_table(description)])


def _active(description: Description) -> str:
    if description.active_parameters == description.parameters:
        return ""
    return f", of which a token uses {description.active_parameters:,}"


def _weights(notes: Mapping[str, str]) -> dict[str, str]:
    """How the weights came about, for a person."""
    told = {name: text for name, text in notes.items() if not name.startswith("lora_")}
    if is_adapter(notes):
        told["adapts"] = f"the model of {base_path(notes)}, which is needed too"
    return told


def _vocabulary(description: Description) -> str:
    kind = description.recipe.vocabulary.kind
    source, target = description.source_vocabulary, description.target_vocabulary
    if not isinstance(description.recipe, Recipe):
        return f"{source:,} entries, {kind}"
    if description.recipe.vocabulary.joint:
        return f"{source:,} entries, {kind}, of source and target together"
    return f"{source:,} entries for the source, {target:,} for the target, {kind}"


def _model(model: ModelConfig) -> str:
    shared = "" if model.kv_heads == model.num_heads else f", {model.kv_heads} of keys and values"
    return (
        f"{_layers(model)}, d_model {model.d_model}, {counted(model.num_heads, 'head')}{shared} "
        f"of d_k {model.key_dim} and d_v {model.value_dim}, d_ff {model.d_ff} "
        f"({model.feed_forward}{_experts(model)}), "
        f"{model.norm_position}-norm ({model.norm.kind}), {_positions(model)}{_mixing(model)}"
    )


def _experts(model: ModelConfig) -> str:
    experts = model.experts
    return f", {counted(experts.number, 'expert')}, {experts.top} a token" if experts.number else ""


def _positions(model: ModelConfig) -> str:
    positions = model.positions
    if isinstance(positions, RotaryConfig) and not isinstance(positions.scaling, NoScalingConfig):
        return f"rotary positions ({positions.scaling.kind}, factor {positions.scaling.factor:g})"
    return f"{positions.kind} positions"


def _mixing(model: ModelConfig) -> str:
    """What takes the place of plain self-attention, if anything does."""
    match model:
        case TransformerConfig() if model.decoder_mixer != "attention":
            return f", {model.decoder_mixer} in the decoder"
        case DecoderConfig() if model.window:
            since = f" from layer {model.window_from} on" if model.window_from else ""
            return f", a window of {counted(model.window, 'token')}{since}"
        case _:
            pass
    said = mixers_in_words(model)
    return f", {said}" if said else ""


def _layers(model: ModelConfig) -> str:
    if isinstance(model, TransformerConfig):
        return f"{model.encoder_layers} encoder and {model.decoder_layers} decoder layers"
    return counted(model.num_layers, "layer")


def _table(description: Description) -> list[str]:
    """The parts in columns, the sum below."""
    rows = [("part", "shapes (biases not shown)", "each", "copies", "parameters")]
    rows += [
        (part.name, part.shape, f"{part.each:,}", f"{part.copies}", f"{part.parameters:,}")
        for part in description.parts
    ]
    rows.append(("all", "", "", "", f"{description.parameters:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if column < 2 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
