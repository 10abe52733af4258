"""A run as one page to read: report.html, which needs no other file and no network."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from regard.durations import duration
from regard.evaluation.chart import Chart, Series, draw, short_count, short_rate
from regard.evaluation.figures import FIGURES, figures_of
from regard.evaluation.page import page
from regard.evaluation.records import Record, curve, of_event
from regard.evaluation.samples import sample_section
from regard.models.count import Part, total_parameters
from regard.weights.files import write_file

_TILES: Final = 3


@dataclass(frozen=True)
class ReportData:
    """All that a report shows; whatever is empty leaves its section out.

    Args:
        title: the run's name.
        description: a sentence on what it is.
        records: the records of metrics.jsonl.
        parameters: the parts of the model, from `regard.models.count.parameter_table`.
        facts: what made it, in order: versions, machine, time taken, data.
        recipe: the resolved recipe, in TOML.
        commands: what to type next.
        unit: what a loss is a mean over.
        best_metric: the figure by which a validation is best.
    """

    title: str
    description: str = ""
    records: Sequence[Record] = ()
    parameters: Sequence[Part] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    recipe: str = ""
    commands: Sequence[str] = ()
    unit: str = "target token"
    best_metric: str = "bleu"


def write_report(path: Path, data: ReportData) -> None:
    """Write the page, in one step; every text in it is escaped.

    Raises:
        RunFolderError: it can't be written.
    """
    # A lone surrogate from a damaged text would stop the page from being written at all.
    write_file(path, render_report(data).encode("utf-8", "replace"))


def render_report(data: ReportData) -> str:
    """The page as HTML."""
    validations = of_event(data.records, "valid")
    tests = of_event(data.records, "test")
    best = _best(validations, data.best_metric)
    lead = f'<p class="lead">{_text(data.description)}</p>' if data.description else ""
    body = [
        f'<p class="over">regard · training report</p><h1>{_text(data.title)}</h1>{lead}',
        _tiles(data, validations, best, tests),
        _section("How it learned", _charts(data, validations), wrap="charts"),
        _section(
            "What it said",
            sample_section(validations),
            wrap="samples",
            note=_samples_note(validations),
        ),
        _section("Scores", _scores(best, tests), wrap="card scroll"),
        _section(
            "What it took for what",
            _confusion(best),
            wrap="card scroll",
            note="A row for each label, a column for each that was given, at the best validation.",
        ),
        _section("Parameters", _parameters(data.parameters), wrap="card scroll"),
        _section("What made it", _facts(data), wrap="card scroll"),
        _section("Next", _commands(data.commands), wrap="card scroll"),
        "<footer>Written by regard. This file is complete: it loads nothing.</footer>",
    ]
    return page(f"{data.title}: training report", "\n".join(part for part in body if part))


def _section(title: str, content: str, *, wrap: str, note: str = "") -> str:
    if not content:
        return ""
    above = f'<p class="lead">{_text(note)}</p>' if note else ""
    return f'<section><h2>{title}</h2>{above}<div class="{wrap}">{content}</div></section>'


def _tiles(
    data: ReportData,
    validations: Sequence[Record],
    best: Record | None,
    tests: Sequence[Record],
) -> str:
    tiles: list[tuple[str, str, str]] = []
    for name in _measured([*validations, *tests])[:_TILES]:
        figure = FIGURES[name]
        if found := curve(tests, name):
            tiles.append((figure.title, figure.show(found[-1][1]), "on the test split"))
        elif best and (found := curve([best], name)):
            step, value = found[0]
            tiles.append((figure.title, figure.show(value), f"best validation, step {step:,}"))
    if data.parameters:
        total = total_parameters(data.parameters)
        tiles.append(("Parameters", short_count(total), f"{total:,}"))
    trained = of_event(data.records, "train")
    if trained:
        epoch = curve(trained[-1:], "epoch")
        of = f"in epoch {epoch[0][1] + 1:.0f}" if epoch else "of the optimizer"
        tiles.append(("Steps", f"{int(trained[-1].get('step') or 0):,}", of))
    speeds = sorted(value for _, value in curve(trained, "tokens_per_second"))
    of = f"{speeds[len(speeds) // 2]:,.0f} {data.unit}s a second" if speeds else ""
    timed = curve([*trained, *validations, *of_event(data.records, "stop")], "seconds")
    if timed:
        tiles.append(("Training time", duration(max(value for _, value in timed)), of))
    cells = [
        f'<div class="tile"><div class="name">{_text(name)}</div>'
        f'<div class="value">{_text(value)}</div><div class="of">{_text(of)}</div></div>'
        for name, value, of in tiles
    ]
    return f'<div class="tiles">{"".join(cells)}</div>' if cells else ""


def _charts(data: ReportData, validations: Sequence[Record]) -> str:
    records = data.records
    trained = of_event(records, "train")
    marks = [
        (int(record.get("step") or 0), f"resumed at step {int(record.get('step') or 0):,}")
        for record in of_event(records, "resume")
    ]
    plain = bool(curve(trained, "nll"))
    charts = [
        Chart(
            "Loss",
            [
                Series("training", curve(trained, "nll", "loss")),
                Series("validation", curve(validations, "loss"), colour=2, dots=True),
            ],
            show=lambda value: f"{value:.3g}",
            note=f"Natural logarithm, per {data.unit}. "
            + (
                "Training has dropout, validation has none."
                if plain
                else "Training counts label smoothing and has dropout, validation has neither."
            )
            + (" Dashed: resumed there." if marks else ""),
            marks=marks,
        ),
        Chart(
            "Translation, validation text",
            [
                Series("BLEU", curve(validations, "bleu"), dots=True),
                Series("chrF", curve(validations, "chrf"), colour=2, dots=True),
            ],
            show=lambda value: f"{value:.3g}",
            note="Of plain text, by sacreBLEU; higher is better.",
            from_zero=True,
            marks=marks,
        ),
        Chart(
            "Right, validation text",
            [
                Series("accuracy", curve(validations, "accuracy"), dots=True),
                Series("macro F1", curve(validations, "f1"), colour=2, dots=True),
            ],
            show=lambda value: f"{100 * value:.3g} %",
            note="The share of what was to be told; higher is better.",
            from_zero=True,
            marks=marks,
        ),
        Chart(
            "Learning rate",
            [Series("rate", curve(trained, "learning_rate"))],
            show=short_rate,
            from_zero=True,
            marks=marks,
        ),
        Chart(
            "Speed",
            [Series(f"{data.unit}s a second", curve(trained, "tokens_per_second"))],
            show=short_count,
            from_zero=True,
            marks=marks,
        ),
    ]
    return "".join(draw(chart) for chart in charts)


def _scores(best: Record | None, tests: Sequence[Record]) -> str:
    records = [("Test", record) for record in tests[-1:]]
    if best:
        records.append((f"Validation, step {int(best.get('step') or 0):,}", best))
    rows = []
    for where, record in records:
        for name in _measured([record]):
            for _, value in curve([record], name):
                figure = FIGURES[name]
                how = record.get(f"{name}_signature") or figure.how
                rows.append(
                    f"<tr><td>{_text(where)}</td><td>{figure.title}</td>"
                    f'<td class="number">{figure.show(value, more=1)}'
                    f"</td><td><code>{_text(str(how))}</code></td></tr>"
                )
    if not rows:
        return ""
    head = '<tr><th>Text</th><th>Measure</th><th class="number">Score</th><th>How</th></tr>'
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _measured(records: Sequence[Record]) -> list[str]:
    """The figures that any of the records has, in the order in which they are shown."""
    found = {name for record in records for name in figures_of(record)}
    return [name for name in FIGURES if name in found]


def _best(validations: Sequence[Record], metric: str) -> Record | None:
    """The best validation by a figure, the last of equals, as training keeps its model."""
    points = curve(validations, metric)
    if not points:
        return validations[-1] if validations else None
    step, _ = FIGURES[metric].best(points[::-1])
    return next(record for record in validations if record.get("step") == step)


def _samples_note(validations: Sequence[Record]) -> str:
    """What the samples are: sentences with references, or beginnings of texts."""
    samples = [sample for record in validations for sample in record.get("samples") or ()]
    if any("prompt" in sample for sample in samples):
        return "Beginnings of texts, and how it went on with them at each step, the latest first."
    return (
        "Sentences that it never trained on, and what it made of them at each step, the latest "
        "first. Underlined: words that the reference hasn't at that place. A bar: words are left "
        "out."
    )


def _confusion(best: Record | None) -> str:
    """What was taken for what at the best validation: a row for each true label."""
    best = best or {}
    labels, counts = best.get("labels") or (), best.get("confusion") or ()
    if not labels:
        return ""
    head = "".join(f'<th class="number">{_text(str(label))}</th>' for label in labels)
    rows = []
    for label, row in zip(labels, counts, strict=True):
        total = max(1, sum(row))
        cells = "".join(
            f'<td class="number" style="background:color-mix(in srgb, var(--one) '
            f'{45 * count / total:.0f}%, transparent)">{count:,}</td>'
            for count in row
        )
        rows.append(f"<tr><th>{_text(str(label))}</th>{cells}</tr>")
    return (
        f"<table><thead><tr><th>Label</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _parameters(parts: Sequence[Part]) -> str:
    if not parts:
        return ""
    total = total_parameters(parts)
    widest = max(1, *(part.parameters for part in parts))
    rows = []
    for part in parts:
        shape = part.shape if part.copies == 1 else f"{part.copies} × ({part.shape})"
        share = 100 * part.parameters / widest
        bar = f'<span class="bar" style="width:{share:.1f}%"></span>' if share else ""
        rows.append(
            f"<tr><td>{_text(part.name)}</td><td><code>{_text(shape)}</code></td>"
            f'<td class="number">{part.parameters:,}</td><td class="share">{bar}</td></tr>'
        )
    rows.append(
        f'<tr class="total"><td>Total</td><td></td><td class="number">{total:,}</td>'
        '<td class="share"></td></tr>'
    )
    head = (
        '<tr><th>Part</th><th>Shape</th><th class="number">Parameters</th>'
        '<th class="share"></th></tr>'
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _facts(data: ReportData) -> str:
    rows = "".join(
        f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>"
        for name, value in data.facts.items()
    )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    if not data.recipe:
        return table
    recipe = re.sub(
        r"(?m)^\[.*\]$",
        lambda found: f'<span class="section">{found[0]}</span>',
        _text(data.recipe),
    )
    return f"{table}<details><summary>The recipe</summary><pre>{recipe}</pre></details>"


def _commands(commands: Sequence[str]) -> str:
    return f"<pre>{_text(chr(10).join(commands))}</pre>" if commands else ""


def _text(words: str) -> str:
    return html.escape(words, quote=True)
