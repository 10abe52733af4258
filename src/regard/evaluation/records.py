"""What training measured, read back from metrics.jsonl."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.counts import counted
from regard.errors import RunFolderError

Record = Mapping[str, Any]
"""One line of metrics.jsonl. `event` says what it is and `step` when; the rest by event:

- "train": loss, nll, learning_rate, tokens_per_second, target_tokens, epoch, grad_norm,
  and of a model with experts balance and busiest_expert
- "valid": the figures of `regard.evaluation.figures` that were measured, signatures, samples (of
  translation: source, reference, translation; of text: prompt, text), and of a classifier the
  labels and the confusion of them
- "test": the scores of "valid", once, on the test split
- "start", "resume", "stop"

A field that is missing or null was not measured, or was no finite number.
"""


def read_metrics(path: Path, log: Callable[[str], None]) -> list[Record]:
    """The records of a metrics.jsonl, in order.

    A last line without an end was torn by a crash: it is left out, and `log` is told.

    Raises:
        RunFolderError: the file can't be read, or a whole line is no record (line named).
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunFolderError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if torn := lines.pop():
        lost = counted(len(torn), "byte")
        log(f"{path}: the last line was torn by a crash and is left out ({lost})")
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or "event" not in record:
            raise RunFolderError(
                "the line is no record of training",
                where=f"{path}, line {number}",
                hint="Remove the line.",
            )
        records.append(record)
    return records


def of_event(records: Iterable[Record], event: str) -> list[Record]:
    """The records of one event by step; where a step was done twice, the later counts."""
    found: dict[int, Record] = {}
    for record in records:
        if record.get("event") == event:
            step = int(record.get("step") or 0)
            found.pop(step, None)
            found[step] = record
    return [found[step] for step in sorted(found)]


def curve(records: Sequence[Record], *names: str) -> list[tuple[int, float]]:
    """(step, value) of the first of `names` that a record has; records without one are left out."""
    points = []
    for record in records:
        for name in names:
            value = record.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                points.append((int(record.get("step") or 0), float(value)))
                break
    return points


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most `most` points: each the mean of as many neighbours, at the step of the last."""
    size = max(1, math.ceil(len(points) / most))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]
