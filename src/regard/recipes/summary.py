"""The report of a run: what is gathered for report.html, from the run folder and the machine."""

import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from regard.counts import counted
from regard.durations import duration
from regard.evaluation.records import read_metrics
from regard.evaluation.report import ReportData, write_report
from regard.machine import cpu_model, usable_cores
from regard.recipes.describe import parts_of
from regard.recipes.recipe import AnyRecipe, EncoderRecipe, Recipe
from regard.recipes.write import format_recipe
from regard.version import VERSION
from regard.weights.run_folder import RunFolder
from regard.weights.vocabularies import open_tokenizers


def write_run_report(
    folder: RunFolder, recipe: AnyRecipe, *, commands: Sequence[str], say: Callable[[str], None]
) -> None:
    """Write report.html of a run from its metrics and its resolved recipe.

    Raises:
        RunFolderError: the metrics can't be read or the page can't be written.
    """
    records = read_metrics(folder.metrics_path, say)
    tokenizers = open_tokenizers(folder)
    sizes = tokenizers.source.size, tokenizers.target.size
    data = ReportData(
        title=folder.path.resolve().name,
        description=recipe.description,
        records=records,
        parameters=parts_of(recipe, *sizes),
        facts=_facts(recipe, records, sizes),
        recipe=format_recipe(recipe),
        commands=commands,
        unit=recipe.unit,
        best_metric=recipe.training.best_metric,
    )
    write_report(folder.report_path, data)


def _facts(
    recipe: AnyRecipe, records: Sequence[Mapping[str, Any]], sizes: tuple[int, int]
) -> dict[str, str]:
    started = [record for record in records if record["event"] in ("start", "resume")]
    stopped = [record for record in records if record["event"] == "stop"]
    facts = {
        "text": ", ".join(_files(recipe)),
        "vocabulary": _vocabulary(recipe, sizes),
        "regard": VERSION,
        "python": platform.python_version(),
        "torch": version("torch"),
        "tokenizers": version("tokenizers"),
        "system": platform.platform(),
        "cpu": f"{cpu_model()}, {counted(usable_cores(), 'usable core')}",
    }
    if started:
        facts["trained on"] = f"{started[-1]['device']}, {started[-1]['precision']}"
    if stopped:
        facts["training time"] = duration(stopped[-1]["seconds"])
    return facts


def _files(recipe: AnyRecipe) -> Sequence[str]:
    """The files that it was trained on."""
    if isinstance(recipe, Recipe):
        return [*recipe.data.source, *recipe.data.target, *recipe.data.tsv]
    if isinstance(recipe, EncoderRecipe) and recipe.classifies:
        return recipe.labels.train
    return recipe.data.text


def _vocabulary(recipe: AnyRecipe, sizes: tuple[int, int]) -> str:
    if not isinstance(recipe, Recipe):
        return f"{sizes[0]:,} entries"
    if recipe.vocabulary.joint:
        return f"{sizes[0]:,} entries, joint"
    return f"{sizes[0]:,} and {sizes[1]:,} entries"
