"""A number of things is said as people say it: "1 thread" and "2 threads"."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.counts import counted

SOURCE = Path(__file__).parents[1] / "src" / "regard"
THINGS = (
    "bytes", "checkpoints", "cores", "documents", "entries", "experts", "files", "heads", "items",
    "keys", "layers", "lines", "minutes", "operations", "pairs", "parameters", "prefixes",
    "processes", "references", "rows", "samples", "sentences", "steps", "strings", "texts",
    "threads", "tokens", "translations", "validations", "vectors", "weights",
)  # fmt: skip
# What is never one, or no number: of vocabularies, of what is more than another number, ranges.
NEVER_ONE = {
    "a sequence of {length} tokens is longer",
    "a sequence of {longest} tokens is longer",
    "tokens is more than the ",
    "tokens, the one before it counted, and the model has ",
    "the prompt has {len(ids)} tokens, and the model has ",
    "{tokenizer.size} entries",
    "{source} entries",
    "{sizes[0]} entries",
    "{sizes[1]} entries",
    "{theirs.size} entries",
    "{ours.size} entries",
    "{size} entries",
    "vocabulary has {self.targets} entries",
    "{tokenizers.source.size} entries",
    "of {self.targets} tokens on average",
    "the {longest} tokens that data.max_tokens has room for",
    "the {translator.trained_length} tokens that the model was trained on",
    "there are {here} processes",
    "{processes} processes",
    "each of the {in_row - 1} steps",
    "to {high} steps",
    "{found.pairs} pairs have nearly the same",
    "of {len(lengths)} pairs (number ",
    "there are {len(found)} files like ",
    "{model.kv_heads} of keys",
    "parameters",
    "the last {last} checkpoints is no model",
    "at most {MOST_LAYERS} layers",
    " encoder and {model.decoder_layers} decoder layers",
    "{layers} layers, the first ",
    "{far.name} more layers",
    "{duration(",
    "{' and '.join(names)} weights",
}


@pytest.mark.parametrize(
    ("number", "thing", "said"),
    [
        (0, "thread", "0 threads"),
        (1, "thread", "1 thread"),
        (1.0, "minute", "1 minute"),
        (0.5, "minute", "0.5 minutes"),
        (34_999, "pair", "34,999 pairs"),
        (2, "entry", "2 entries"),
        (1, "entry", "1 entry"),
        (2, "key", "2 keys"),
        (2, "prefix", "2 prefixes"),
    ],
)
def test_one_is_one(number: float, thing: str, said: str) -> None:
    assert counted(number, thing) == said


def numbered() -> Iterator[str]:
    """Every text with a number before things: the file, and the text around."""
    things = re.compile(rf" (?:\w+ )?(?:{'|'.join(THINGS)})\b")
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            for place, part in enumerate(node.values[:-1]):
                after = node.values[place + 1]
                if not (isinstance(part, ast.FormattedValue) and isinstance(after, ast.Constant)):
                    continue
                if things.match(after.value):
                    before = node.values[place - 1] if place else None
                    start = before.value if isinstance(before, ast.Constant) else ""
                    yield f"{path.name}: {start}{{{ast.unparse(part.value)}}}{after.value}"


def test_no_text_has_a_number_before_things_that_may_be_one() -> None:
    wrong = [text for text in numbered() if not any(known in text for known in NEVER_ONE)]
    assert wrong == []
