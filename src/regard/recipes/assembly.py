"""From a recipe to the parts of a run: text, vocabulary, model, batches, validation."""

from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from regard.errors import RecipeError
from regard.models.count import total_parameters
from regard.recipes.assembled import Assembly
from regard.recipes.describe import parts_of
from regard.recipes.labelled import assemble_labels
from regard.recipes.pairs import assemble_pairs
from regard.recipes.recipe import AnyRecipe, DecoderRecipe, EncoderRecipe, Recipe
from regard.recipes.start import borrows
from regard.recipes.texts import assemble_text
from regard.text.prepared import discard_unfinished
from regard.weights.run_folder import RunFolder


def assemble(
    recipe: AnyRecipe,
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
    # What is frozen is in that run alone, also where the training goes on.
    wanted = recipe.init and (vocabularies is None or recipe.lora.rank)
    start = RunFolder.open(recipe.init) if wanted else None
    given = vocabularies or start
    if recipe.vocabulary.kind == "foreign" and given is None and not borrows(recipe):
        raise RecipeError(
            "a vocabulary from elsewhere can't be trained",
            where="vocabulary.kind",
            hint="Start from the run that has it, with --init RUN, or choose another kind.",
        )
    made: Assembly
    try:
        match recipe:
            case Recipe():
                made = assemble_pairs(
                    recipe, folder, start=start, vocabularies=given, expected=expected, say=say
                )
            case EncoderRecipe() if recipe.classifies:
                made = assemble_labels(
                    recipe, folder, start=start, vocabularies=given, expected=expected, say=say
                )
            case DecoderRecipe() | EncoderRecipe():
                made = assemble_text(
                    recipe, folder, start=start, vocabularies=given, expected=expected, say=say
                )
            case _ as never:
                assert_never(never)
    except BaseException:
        discard_unfinished(folder)
        raise
    if start is not None:
        say(f"model: weights and vocabulary of {recipe.init}")
    sizes = made.vocabularies.source.size, made.vocabularies.target.size
    say(f"model: {total_parameters(parts_of(made.recipe, *sizes)):,} parameters")
    return made
