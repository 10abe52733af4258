"""`regard embed`, `classify` and `fill`: as many vectors and labels out as lines in."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from serving.command import Command, Done
from serving.tiny_families import LABELS, make_encoder_run

import regard
from regard.serving import encoder as encoder_module
from regard.serving.encoder import Encoder

LINES = ["the light", "", "das Licht ist an", " ", "Küche 🙂", "a\u2028b", "</s> [MASK]"]
DATA = "\n".join(LINES).encode()


@pytest.fixture(scope="module")
def encoder_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder_run(tmp_path_factory.mktemp("runs") / "bert")


@pytest.fixture(scope="module")
def encoder(encoder_run: Path) -> Encoder:
    return regard.load_encoder(encoder_run, device="cpu")


def read_vectors(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in lines]
        assert [record["text"] for record in records] == LINES
        rows = [record["vector"] for record in records]
    else:
        separator = " " if path.suffix == ".txt" else "\t"
        rows = [[float(number) for number in line.split(separator)] for line in lines]
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("ending", [".npy", ".jsonl", ".txt", ".tsv"])
def test_every_line_has_a_vector_in_every_format(
    command: Command, encoder_run: Path, encoder: Encoder, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / f"vectors{ending}"
    done = command("embed", encoder_run, "--out", out, stdin=DATA)
    assert (done.code, done.out, done.err) == (0, b"", f"7 vectors in {out}\n")
    found = read_vectors(out)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, encoder.embed(LINES))
    assert list(tmp_path.iterdir()) == [out]


def test_an_array_is_whole_for_many_lines_and_for_none(
    command: Command, encoder_run: Path, encoder: Encoder, tmp_path: Path
) -> None:
    out, source = tmp_path / "vectors.npy", tmp_path / "lines.txt"
    words = ["light", "kitchen on", "an"]
    source.write_text("".join(f"{words[place % 3]}\n" for place in range(3000)))
    done = command("embed", encoder_run, "--out", out, "--input", source)
    assert (done.code, done.err) == (0, f"3,000 vectors in {out}\n")
    found = np.load(out, mmap_mode="r")
    assert found.shape == (3000, 16)
    np.testing.assert_allclose(found, np.tile(encoder.embed(words), (1000, 1)), atol=1e-5)
    assert command("embed", encoder_run, "--out", out, stdin=b"").code == 0
    assert np.load(out).shape == (0, 16)


def test_pooling_and_length_are_options(
    command: Command, encoder_run: Path, encoder: Encoder, tmp_path: Path
) -> None:
    out = tmp_path / "vectors.npy"
    options = ("--pooling=cls", "--no-normalize")
    assert command("embed", encoder_run, "--out", out, *options, stdin=DATA).code == 0
    np.testing.assert_array_equal(
        np.load(out), encoder.embed(LINES, pooling="cls", normalize=False)
    )


def test_what_was_there_stays_when_embedding_fails(
    command: Command, encoder_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "vectors.npy"
    out.write_bytes(b"former")
    done = command("embed", encoder_run, "--out", out, stdin=b"fine\n\xff\n")
    assert done.code == 2
    assert "line 2" in done.err
    assert out.read_bytes() == b"former"
    assert list(tmp_path.iterdir()) == [out]


def test_an_array_into_a_pipe_is_refused_before_the_model_is_opened(
    command: Command, encoder_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr(encoder_module, "load_encoder", opened.append)
    pipe = tmp_path / "vectors.npy"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = command("embed", encoder_run, "--out", pipe, stdin=DATA)
    finally:
        os.close(reader)
    assert done == Done(
        2,
        b"",
        f"error: {pipe}: wanted a file, found a pipe: the first bytes are written last\n"
        "  Write to a file, or use another ending.\n",
    )
    assert not opened


def test_every_line_has_a_label(
    command: Command, encoder_run: Path, encoder: Encoder, tmp_path: Path
) -> None:
    labels = encoder.classify(LINES)
    done = command("classify", encoder_run, stdin=DATA)
    assert (done.code, done.err) == (0, "")
    assert done.lines == [f"{label.name}\t{label.probability:.4f}" for label in labels]
    out = tmp_path / "labels.jsonl"
    done = command("classify", encoder_run, "--json", "--output", out, stdin=DATA)
    assert (done.code, done.out) == (0, b"")
    records = [json.loads(line) for line in out.read_text().split("\n")[:-1]]
    assert [record["label"] for record in records] == [label.name for label in labels]
    assert records[0]["probabilities"] == dict(labels[0].probabilities)


def test_a_line_that_is_cut_is_named(command: Command, encoder_run: Path, tmp_path: Path) -> None:
    data = b"short\n" + b"x y z " * 20 + b"\n"
    done = command("classify", encoder_run, stdin=data)
    assert len(done.lines) == 2
    assert done.err.startswith("warning: standard input, line 2: 123 tokens is more than the 24 ")
    done = command("fill", encoder_run, "[MASK] x y" * 20, "--top=1")
    assert done.code == 2
    done = command("fill", encoder_run, "[MASK]" + " x y" * 20, "--top=1")
    assert (done.code, len(done.lines)) == (0, 1)
    assert done.err.startswith("warning: the text: ")


def test_a_classifier_is_measured_on_texts_with_labels(
    command: Command, encoder_run: Path, encoder: Encoder, tmp_path: Path
) -> None:
    given = [label.name for label in encoder.classify(LINES)]
    wrong = LABELS[(LABELS.index(given[0]) + 1) % 3]
    right = [wrong, *given[1:]]
    path = tmp_path / "test.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in zip(right, LINES, strict=True)))
    done = command("classify", encoder_run, "--labels", path, "--json")
    assert (done.code, done.err) == (0, "")
    figures = json.loads(done.out)
    assert figures["accuracy"] == pytest.approx(6 / 7)
    assert figures["labels"] == list(LABELS)
    assert figures["confusion"][LABELS.index(wrong)][LABELS.index(given[0])] == 1
    assert (figures["texts"], sum(map(sum, figures["confusion"]))) == (7, 7)
    done = command("classify", encoder_run, "--labels", path)
    assert done.lines[0] == "accuracy     85.7 %  the share that is right"
    assert done.lines[1].startswith("macro F1")
    assert done.lines[2:4] == ["", "7 texts; a line a right label, a column a label given"]
    assert done.lines[4].split() == list(LABELS)
    table = [line.split() for line in done.lines[5:]]
    assert [[int(count) for count in row[1:]] for row in table] == figures["confusion"]
    assert [row[0] for row in table] == list(LABELS)


def test_masks_are_filled(command: Command, encoder_run: Path, encoder: Encoder) -> None:
    text = "the [MASK] is [MASK]."
    expected = [
        (number, each.text, each.probability)
        for number, fillings in enumerate(encoder.fill(text, top=3), start=1)
        for each in fillings
    ]
    done = command("fill", encoder_run, text, "--top=3")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [f"{number}\t{word}\t{share:.4f}" for number, word, share in expected]
    done = command("fill", encoder_run, text, "--top=3", "--json")
    assert [tuple(json.loads(line).values()) for line in done.lines] == expected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["embed", "--out=vectors.csv"],
            "--out vectors.csv: expected a file name that ends in .npy, .jsonl, .txt or .tsv, "
            "got .csv\n",
        ),
        (
            ["embed", "--out=vectors"],
            "--out vectors: expected a file name that ends in .npy, .jsonl, .txt or .tsv, "
            "got none\n",
        ),
        (["embed", "--out=no/vectors.npy"], "no/vectors.npy: cannot be written: No such file"),
        (["classify", "--labels=none.tsv"], "none.tsv: no such file"),
        (
            ["classify", "--labels=none.tsv", "--output=x"],
            "--output: cannot go with --labels\n",
        ),
        (["fill", "no mask"], "text: there is no [MASK] in it\n"),
        (["fill", "[MASK] \udcff"], "TEXT: character 8 is not valid UTF-8\n"),
    ],
)
def test_refuses_what_makes_no_sense(
    command: Command,
    encoder_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = arguments
    done = command(name, encoder_run, *options)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"error: {text}")


@pytest.mark.parametrize(("name", "option"), [("embed", "--out"), ("classify", "--output")])
@pytest.mark.parametrize("other", ["lines.txt", "link.txt"])
def test_a_text_is_not_replaced_by_what_is_made_of_it(
    command: Command, encoder_run: Path, tmp_path: Path, name: str, option: str, other: str
) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("red\n")
    (tmp_path / "link.txt").symlink_to(path)
    done = command(name, encoder_run, "--input", path, option, tmp_path / other)
    assert (done.code, done.out) == (2, b"")
    assert done.err == (
        f"error: {option} {tmp_path / other}: the file is that of --input too\n"
        "  Give each its own file.\n"
    )
    assert path.read_text() == "red\n"


def test_refuses_labels_that_it_does_not_know(
    command: Command, encoder_run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "test.tsv"
    for line, problem in (
        ("taste\tsweet", "unknown label 'taste'\n  the labels are: colour, number, place"),
        ("colour", "wanted a tab between the label and the text, found none"),
    ):
        path.write_text(f"colour\tred\n{line}\n")
        done = command("classify", encoder_run, "--labels", path)
        assert done.err == f"error: {path}, line 2: {problem}\n"


def test_refuses_runs_of_other_families(command: Command, run_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    for arguments in (["embed", run_path, "--out", out], ["classify", run_path]):
        done = command(*arguments, stdin=b"a\n")
        assert done.code == 2
        assert "regard translate, or regard.load in Python" in done.err
    assert not out.exists()
