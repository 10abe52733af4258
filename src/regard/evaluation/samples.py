"""What a model made of the same few sentences or prompts as it learned, as HTML."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from regard.evaluation.records import Record

_MOST_ROWS: Final = 8
_PIECES: Final = re.compile(r"\s+|\S+")
_CHARACTERS: Final = re.compile(r"\s+|\S")


@dataclass(frozen=True)
class Said:
    """A translation, and the first and last step at which it was said."""

    text: str
    first: int
    last: int


def sample_section(validations: Sequence[Record]) -> str:
    """The texts with what was said of each, the latest first; an empty string if none.

    A text is a sentence with its reference, or a prompt that the model goes on with. A result
    said several times running takes one row; of many rows, a spread is shown.
    """
    said: dict[tuple[str, str | None], list[Said]] = {}
    for record in validations:
        step = int(record.get("step") or 0)
        for sample in record.get("samples") or ():
            prompt = sample.get("prompt")
            given, reference = sample.get("source", prompt), sample.get("reference")
            key = str(given), None if reference is None else str(reference)
            rows = said.setdefault(key, [])
            text = str(sample["text" if prompt is not None else "translation"])
            if rows and rows[-1].text == text:
                rows[-1] = Said(text, rows[-1].first, step)
            else:
                rows.append(Said(text, step, step))
    return "".join(_sample(*key, rows) for key, rows in said.items())


def marked(translation: str, reference: str) -> str:
    """The translation, escaped, its differences from the reference marked.

    Words that the reference hasn't at that place are underlined; a bar stands where words of
    the reference are left out. Text without blanks is compared by characters.
    """
    pattern = _PIECES if re.search(r"\s", reference.strip()) else _CHARACTERS
    ours = pattern.findall(translation)
    theirs = pattern.findall(reference)
    parts = []
    matcher = SequenceMatcher(None, theirs, ours, autojunk=False)
    for kind, left, right, start, end in matcher.get_opcodes():
        text = html.escape("".join(ours[start:end]))
        if kind == "delete" and "".join(theirs[left:right]).strip() and ours:
            parts.append('<i class="gap" title="words are left out here"></i>')
        off = kind != "equal" and text.strip()
        parts.append(f'<span class="off">{text}</span>' if off else text)
    return "".join(parts)


def spread(rows: Sequence[Said], most: int = _MOST_ROWS) -> list[Said]:
    """At most `most` rows: the first, the last, and evenly between."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def _sample(source: str, reference: str | None, rows: Sequence[Said]) -> str:
    items = "".join(_row(row, reference) for row in reversed(spread(rows)))
    texts = {"Prompt": source} if reference is None else {"Source": source, "Reference": reference}
    pairs = "".join(
        f'<dt>{name}</dt><dd dir="auto">{html.escape(text)}</dd>' for name, text in texts.items()
    )
    return (
        f'<article class="sample"><dl class="pair">{pairs}</dl><ol class="said">{items}</ol>'
        "</article>"
    )


def _row(row: Said, reference: str | None) -> str:
    when = f"{row.first:,}" if row.first == row.last else f"{row.first:,}–{row.last:,}"
    text = html.escape(row.text) if reference is None else marked(row.text, reference)
    text = text or '<span class="off">(nothing)</span>'
    same = ' <span class="same">✓ as the reference</span>' if row.text == reference else ""
    return f'<li><span class="when">{when}</span><p dir="auto">{text}{same}</p></li>'
