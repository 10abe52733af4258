"""Is a small encoder, pretrained and fine-tuned here, better than TF-IDF and logistic regression?

    apt-cache dumpavail > packages.txt
    python benchmarks/classification.py packages.txt [--minutes 20]
    python benchmarks/classification.py packages.txt --encoder runs/minilm --labelled 1000,8000,all
    python benchmarks/classification.py packages.txt --quick --json quick.json

The task is to tell the section of a Debian package (python, libdevel, games, ...) from the one
line that describes it. Sections of fewer than 300 different descriptions are left out; a hash of
the description decides whether it is for training (8 of 10), validation or the test. With
`--labelled N` only N lines of the training part have their label, and N / 8 of the validation
part; the test is the same. Both contestants are trained on the training part and chosen on the
validation part alone:

- regard: `regard train bert` on the descriptions without their sections, then
  `regard finetune`, as a person would type it; with `--encoder RUN` that encoder, for example one
  that `regard import` made, is fine-tuned instead;
- the baseline: scikit-learn's logistic regression over TF-IDF of words and pairs of words, of
  runs of characters, or of all of these, at several strengths of regularisation, whichever is
  best on the validation part.

Needs scikit-learn, which regard does not.
"""

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline, make_union

import regard
from regard.machine import cpu_model, usable_cores

FEWEST = 300
PARTS = ("train", "valid", "test")
STRENGTHS = (1.0, 4.0, 16.0)
QUICK_MINUTES, QUICK_EXAMPLES = 1.0, 6000
# Of the minutes, the share for pretraining; the rest is for fine-tuning.
PRETRAINING = 0.6

Examples = list[tuple[str, str]]
Row = dict[str, object]


def main() -> None:
    options = parse()
    parts = split(read_packages(options.packages), options.quick)
    names = sorted({section for section, _ in parts["train"]})
    sizes = ", ".join(f"{len(parts[part]):,} {part}" for part in PARTS)
    print(f"{len(names)} sections; descriptions: {sizes}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as aside:
        folder = options.out or Path(aside)
        write_parts(parts, folder)
        encoder = options.encoder or pretrain(folder, options.minutes)
        for count in options.labelled.split(","):
            labelled = parts if count == "all" else first_labels(parts, int(count))
            print(f"{len(labelled['train']):,} labels", flush=True)
            baseline_name, baseline = best_baseline(labelled)
            ours = finetuned(labelled, encoder, options, folder / count)
            found = compare(parts["test"], ours, baseline, len(labelled["train"]))
            report(found, baseline_name)
            rows += found
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=Path, help="what apt-cache dumpavail printed")
    parser.add_argument("--minutes", type=float, default=20.0, help="for all of our training")
    parser.add_argument("--encoder", type=Path, help="fine-tune this run, don't pretrain one")
    parser.add_argument("--epochs", type=float, default=4.0, help="of fine-tuning")
    parser.add_argument("--set", action="append", default=[], help="for regard finetune")
    parser.add_argument("--labelled", default="all", help="how many labels, such as 1000,8000,all")
    parser.add_argument("--out", type=Path, help="where to keep the text and the runs")
    parser.add_argument("--quick", action="store_true", help="a minute, on a part of the text")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.minutes = QUICK_MINUTES
    return options


def read_packages(path: Path) -> Examples:
    """Every different description once, with the section of the first package that has it."""
    sections: dict[str, str] = {}
    fields: dict[str, str] = {}
    with path.open(encoding="utf-8") as stream:
        for line in [*stream, "\n"]:
            name, colon, value = line.partition(": ")
            if colon and not line.startswith(" "):
                fields[name] = value.strip()
            elif not line.strip():
                text = fields.get("Description") or fields.get("Description-en") or ""
                if text and "Section" in fields:
                    sections.setdefault(" ".join(text.split()), fields["Section"])
                fields = {}
    counts = Counter(sections.values())
    return [(section, text) for text, section in sections.items() if counts[section] >= FEWEST]


def split(examples: Examples, quick: bool) -> dict[str, Examples]:
    """Eight tenths to train on, one to validate, one to test, by a hash of the description."""
    parts: dict[str, Examples] = {part: [] for part in PARTS}
    for section, text in sorted(examples, key=lambda example: digest(example[1])):
        place = int(digest(text)[:8], 16) % 10
        parts["test" if place == 0 else "valid" if place == 1 else "train"].append((section, text))
    if quick:
        parts = {part: found[:QUICK_EXAMPLES] for part, found in parts.items()}
    return parts


def first_labels(parts: dict[str, Examples], count: int) -> dict[str, Examples]:
    """The same parts with so many labels to train on, and an eighth of it to validate."""
    train = parts["train"][:count]
    known = {section for section, _ in train}
    valid = [(section, text) for section, text in parts["valid"][: count // 8] if section in known]
    return {"train": train, "valid": valid, "test": parts["test"]}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def best_baseline(parts: dict[str, Examples]) -> tuple[str, list[str]]:
    """Of the baselines, the one that is best on the validation part; its answers on the test."""
    labels, texts = zip(*parts["train"], strict=True)
    valid_labels, valid_texts = zip(*parts["valid"], strict=True)
    test_texts = [text for _, text in parts["test"]]
    words = {"ngram_range": (1, 2), "sublinear_tf": True}
    characters = {"analyzer": "char_wb", "ngram_range": (2, 5), "sublinear_tf": True}
    kinds = {
        "words": (TfidfVectorizer(**words),),
        "characters": (TfidfVectorizer(**characters),),
        "words and characters": (TfidfVectorizer(**words), TfidfVectorizer(**characters)),
    }
    best = (-1.0, "", [""])
    for kind, vectorizers in kinds.items():
        for strength in STRENGTHS:
            model = make_pipeline(
                make_union(*vectorizers),
                LogisticRegression(C=strength, max_iter=300, tol=1e-3),
            )
            started = time.perf_counter()
            model.fit(texts, labels)
            right = accuracy_score(valid_labels, model.predict(valid_texts))
            name = f"TF-IDF of {kind}, C = {strength:g}"
            seconds = time.perf_counter() - started
            print(f"{name}: {100 * right:.2f}% right on validation, {seconds:.0f} s", flush=True)
            if right > best[0]:
                best = (right, name, list(model.predict(test_texts)))
    return best[1:]


def write_parts(parts: dict[str, Examples], folder: Path) -> None:
    """Each part as labelled lines (.tsv) and as text alone (.txt)."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, examples in parts.items():
        text = "".join(f"{section}\t{line}\n" for section, line in examples)
        (folder / f"{part}.tsv").write_text(text, encoding="utf-8")
        lines = "".join(f"{line}\n" for _, line in examples)
        (folder / f"{part}.txt").write_text(lines, encoding="utf-8")


def finetuned(
    parts: dict[str, Examples], encoder: Path, options: argparse.Namespace, folder: Path
) -> list[str]:
    """Fine-tune and classify by the command line; the answers on the test."""
    write_parts(parts, folder)
    started = time.perf_counter()
    changes = [word for change in options.set for word in ("--set", change)]
    command(
        "finetune", encoder, "--labels", folder / "train.tsv", "--valid-labels",
        folder / "valid.tsv", "--out", folder / "sections", "--epochs", options.epochs, *changes,
    )  # fmt: skip
    print(f"our fine-tuning took {(time.perf_counter() - started) / 60:.1f} min")
    with (folder / "test.txt").open("rb") as stream:
        answers = command("classify", folder / "sections", stdin=stream)
    return [line.split("\t")[0] for line in answers.splitlines()]


def pretrain(folder: Path, minutes: float) -> Path:
    """An encoder that learned from the descriptions alone."""
    steps = plan(folder, minutes)
    command(
        "train", "bert", "--text", folder / "train.txt", "--valid-text", folder / "valid.txt",
        "--out", folder / "bert", "--set", "data.documents=line",
        "--set", f"training.max_steps={steps}",
        "--set", f"training.checkpoint_every={max(1, steps // 4)}",
    )  # fmt: skip
    return folder / "bert"


def plan(folder: Path, minutes: float) -> int:
    """How many steps of pretraining fit into its share of the minutes on this machine."""
    few = 40
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as aside:
        run = Path(aside) / "trial"
        command(
            "train", "bert", "--text", folder / "train.txt", "--valid-text",
            folder / "valid.txt", "--out", run, "--set", "data.documents=line",
            "--set", f"training.max_steps={few}", "--set", f"training.checkpoint_every={few}",
        )  # fmt: skip
        records = [json.loads(line) for line in (run / "metrics.jsonl").open(encoding="utf-8")]
    trained = max(record["seconds"] for record in records if record["event"] == "train")
    print(f"a trial of {few} steps took {time.perf_counter() - started:.0f} s in all")
    return max(few, int(60 * minutes * PRETRAINING / (trained / few)))


def command(*words: object, stdin: object = None) -> str:
    """Run a command of regard and return what it printed."""
    line = [sys.executable, "-m", "regard", *map(str, words)]
    done = subprocess.run(line, stdin=stdin, stdout=subprocess.PIPE, check=True)  # type: ignore[call-overload]
    return done.stdout.decode()


def compare(test: Examples, ours: Sequence[str], peer: Sequence[str], labels: int) -> list[Row]:
    truth = [section for section, _ in test]
    measures = {
        "accuracy": accuracy_score,
        "macro F1": lambda right, found: f1_score(right, found, average="macro"),
    }
    rows: list[Row] = []
    for name, measure in measures.items():
        mine, theirs = (100 * float(measure(truth, found)) for found in (ours, peer))
        rows.append(
            {
                "name": f"{labels} labels: {name}",
                "ours": mine,
                "peer": theirs,
                "ratio": mine / theirs,
                "unit": "%",
            }
        )
    right = np.array([one == two for one, two in zip(truth, ours, strict=True)])
    baseline = np.array([one == two for one, two in zip(truth, peer, strict=True)])
    gain = 100 * (right.astype(float) - baseline.astype(float))
    error = float(gain.std() / len(gain) ** 0.5)
    print(f"gain in accuracy {gain.mean():.2f} points, standard error {error:.2f}")
    return rows


def report(rows: list[Row], baseline: str) -> None:
    print(f"regard {regard.__version__}, torch {version('torch')}, scikit-learn "
          f"{version('scikit-learn')}, Python {platform.python_version()}, {cpu_model()}, "
          f"{usable_cores()} cores")  # fmt: skip
    print(f"baseline: {baseline}")
    print(f"{'':28}{'regard':>10}{'baseline':>10}{'ratio':>8}")
    for row in rows:
        print(f"{row['name']!s:28}{row['ours']:10.2f}{row['peer']:10.2f}{row['ratio']:8.3f}")


if __name__ == "__main__":
    main()
