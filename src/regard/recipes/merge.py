"""A run that was adapted by low-rank sums as a run that needs no other."""

from pathlib import Path

from regard.errors import RunFolderError
from regard.nn.config import LoraConfig
from regard.recipes.load import load_recipe
from regard.recipes.write import format_recipe
from regard.weights.adapted import is_adapter
from regard.weights.run_folder import RunFolder


def merge_run(run: str | Path, out: str | Path) -> None:
    """Write a run folder whose matrices hold the sums that `run` adds to another run's.

    Its outputs have the bits of `run`'s.

    Raises:
        RunFolderError: the run was not adapted, it or the run that it adds to is not whole, or
            `out` holds other things or can't be written.
    """
    folder = RunFolder.open(run)
    notes = folder.model_notes()
    if not is_adapter(notes):
        raise RunFolderError(
            "there is nothing to merge: the run holds all of its weights",
            where=str(run),
            hint="Only a run trained with lora.rank above 0 is merged.",
        )
    weights = folder.load_weights()
    recipe = load_recipe(Path(run)).model_copy(update={"lora": LoraConfig(), "init": ""})
    tokenizers = folder.tokenizer_files()
    with RunFolder.create(out, whole=True) as new:
        new.write_recipe(format_recipe(recipe))
        new.write_tokenizers(tokenizers.source, None if tokenizers.joint else tokenizers.target)
        new.write_model(
            weights, {"made": "merge", **{k: v for k, v in notes.items() if k == "step"}}
        )
