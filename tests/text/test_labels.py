from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import DataError, ModelError
from regard.text import label_batches
from regard.text import labels as labels_module
from regard.text.config import LabelsConfig, VocabularyConfig
from regard.text.label_batches import LabelBatch, LabelBatches
from regard.text.labels import PreparedLabels, prepare_labels
from regard.text.tokenizer import Tokenizer

NOUNS = ["light", "door", "lamp", "switch", "sensor", "window", "heater", "fan", "lock", "bell"]
PLACES = ["kitchen", "garage", "hall", "cellar", "attic", "garden"]
ROWS = [
    (place, f'The "{noun}" in the {place}{" and here" * (number % 4)}')
    for number, noun in enumerate(NOUNS)
    for place in PLACES
]
VOCABULARY = VocabularyConfig(kind="char", size=400)


class Folder:
    """A folder with text files in it, and what was logged while preparing them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log: list[str] = []

    def write(self, name: str, data: str) -> str:
        (self.path / name).write_text(data)
        return str(self.path / name)

    def rows(self, rows: list[tuple[str, str]], name: str = "train.tsv") -> str:
        return self.write(name, "".join(f"{label}\t{text}\n" for label, text in rows))

    def prepare(self, *train: str, max_tokens: int = 99, **settings: Any) -> PreparedLabels:
        self.log.clear()
        vocabulary = settings.pop("vocabulary", None)
        return prepare_labels(
            LabelsConfig(train=train, **settings),
            VOCABULARY,
            self.path / "data",
            max_tokens=max_tokens,
            vocabulary=vocabulary,
            log=self.log.append,
        )

    def refused(self, *train: str, **settings: Any) -> str:
        with pytest.raises(DataError) as caught:
            self.prepare(*train, **settings)
        assert not (self.path / "data").exists()
        return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_batches, "POOL_TEXTS", 20)
    monkeypatch.setattr(labels_module, "CHUNK_LINES", 7)


def rows_of(data: PreparedLabels, name: str = "train") -> list[tuple[str, str]]:
    corpus = getattr(data, name)
    rows = []
    for index in range(len(corpus)):
        [number] = corpus.labels(torch.tensor([index]).numpy()).tolist()
        text = data.vocabulary.decode(corpus.texts.text.ids(index).tolist())
        rows.append((data.names[number], text))
    return rows


def test_lines_keep_their_order_and_labels_are_sorted(folder: Folder) -> None:
    path = folder.rows(ROWS)
    valid = folder.rows(ROWS[:3], "valid.tsv")
    data = folder.prepare(path, valid=valid)
    assert data.names == tuple(sorted(PLACES))
    assert rows_of(data) == ROWS
    assert rows_of(data, "valid") == ROWS[:3]
    assert data.train.line(7) == (path, 8)
    assert data.valid.line(2) == (valid, 3)
    assert data.vocabulary.mask_id == 3
    assert data.counts == {"read": 60, "kept": 60, "empty": 0, "held_out": 0, "cut": 0}
    assert folder.log[1].startswith("labels: attic (10), cellar (10), garage (10)")


def test_the_given_names_give_the_order(folder: Folder) -> None:
    names = ("unseen", *reversed(PLACES))
    data = folder.prepare(folder.rows(ROWS), names=names)
    assert data.names == names
    assert sorted(rows_of(data) + rows_of(data, "valid")) == sorted(ROWS)


def test_lines_are_held_out_by_their_text_and_blank_ones_left_out(folder: Folder) -> None:
    path = folder.rows([*ROWS[:30], ("hall", " ")])
    other = folder.rows(ROWS[30:], "other.tsv")
    data = folder.prepare(path, other, valid_share=0.3)
    train, valid = rows_of(data), rows_of(data, "valid")
    assert sorted(train + valid) == sorted(ROWS)
    assert 6 < len(valid) < 30
    assert data.counts["read"] == 61 == 1 + len(train) + len(valid)
    last = data.train.line(len(train) - 1)
    assert last == (other, 1 + ROWS.index(train[-1]) - 30)
    backwards = folder.rows(ROWS[::-1])
    assert sorted(rows_of(folder.prepare(backwards, valid_share=0.3))) == sorted(train)


def test_a_long_text_is_cut_and_counted(folder: Folder) -> None:
    data = folder.prepare(folder.rows(ROWS), max_tokens=22)
    assert data.counts["cut"] > 0
    for (_, text), (_, whole) in zip(
        sorted(rows_of(data) + rows_of(data, "valid")), sorted(ROWS), strict=True
    ):
        assert text == whole[:20]
    assert f"text: cut {data.counts['cut']} texts of more than 20 tokens" in folder.log
    with pytest.raises(ModelError) as caught:
        folder.prepare(folder.rows(ROWS), max_tokens=2)
    assert str(caught.value) == "max_tokens = 2 leaves no place for text"


def test_few_lines_are_validated_on_themselves(folder: Folder) -> None:
    data = folder.prepare(folder.rows([("a", "x 1"), ("b", "x 2"), ("b", "")]), valid_share=0.9)
    assert rows_of(data) == rows_of(data, "valid") == [("a", "x 1"), ("b", "x 2")]
    assert "so the figures say nothing of unseen text" in folder.log[-3]


def test_what_is_prepared_is_used_again_until_something_changes(folder: Folder) -> None:
    path = folder.rows(ROWS)
    first = folder.prepare(path)
    assert rows_of(folder.prepare(path)) == rows_of(first)
    assert folder.log == [f"text: nothing changed, using what is prepared in {folder.path}/data"]
    given = Tokenizer.train(iter(NOUNS), VOCABULARY, mask=True)
    for change in ({"max_tokens": 9}, {"valid_share": 0.5}, {"vocabulary": given}):
        folder.prepare(path, **change)
        assert len(folder.log) > 1
    folder.prepare(path, vocabulary=given)
    assert len(folder.log) == 1


def test_faulty_lines_are_refused_with_their_numbers(folder: Folder) -> None:
    good = folder.rows(ROWS, "good.tsv")
    path = str(folder.path / "train.tsv")
    assert folder.refused() == "labels: no text with labels is given\n  give labels.train"
    assert folder.refused("none.tsv") == "none.tsv: no such file\n  check the path"
    folder.write("train.tsv", "")
    assert folder.refused(good, path) == (
        f"{path}: the file is empty\n  it must hold at least one line"
    )
    folder.write("train.tsv", "a\tb\nab\n")
    assert folder.refused(good, path) == (
        f"{path}, line 2: wanted a tab between the label and the text, found none"
    )
    folder.write("train.tsv", "a\tb\n \tb\n")
    assert folder.refused(path) == f"{path}, line 2: the label is empty"
    folder.write("train.tsv", "a\tb\na\tc\n")
    assert folder.refused(path) == (
        f"{path}: every line has the label 'a'; a classifier needs two at least"
    )
    folder.write("train.tsv", "a\t\nb\t \n")
    assert folder.refused(path) == f"{path}: every line has a label and no text"
    folder.write("train.tsv", "a\tx\nb\ty\n")
    assert folder.refused(path, names=("a", "c")) == (
        f"{path}, line 2: unknown label 'b'\n  the labels are: a, c"
    )
    valid = folder.write("valid.tsv", "a\tx\nc\ty\n")
    assert folder.refused(path, valid=valid) == (
        f"{valid}, line 2: unknown label 'c'\n  the labels are: a, b"
    )
    folder.write("train.tsv", "".join(f"text {number}\tx\n" for number in range(1001)))
    assert folder.refused(path) == (
        f"{path}, line 1001: more than 1,000 labels\n"
        "  Is the text before the tab? A line is a label, a tab and a text."
    )


def test_a_text_may_hold_tabs_and_quotes(folder: Folder) -> None:
    rows = [("a", '"x\ty"'), ("b", "''")]
    assert rows_of(folder.prepare(folder.rows(rows), valid=folder.rows(rows, "v"))) == rows


def make(data: PreparedLabels, **settings: int) -> LabelBatches:
    settings = {"batch_tokens": 200, "seed": 1, **settings}
    return LabelBatches(data.train, data.vocabulary, **settings)


def same(one: LabelBatch, other: LabelBatch) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in LabelBatch.__dataclass_fields__
    )


def test_batches_hold_every_text_once_with_its_label(folder: Folder) -> None:
    data = folder.prepare(folder.rows(ROWS), valid=folder.rows(ROWS, "v"))
    batches = make(data)
    for epoch in (-1, 0, 1):
        seen = []
        for batch in batches.epoch(epoch):
            assert batch.ids_bs.numel() <= 200
            assert batch.target_tokens == len(batch.pairs_b)
            for row, pair in enumerate(batch.pairs_b.tolist()):
                length = int(batch.lengths_b[row])
                ids = batch.ids_bs[row].tolist()
                assert (ids[0], ids[length - 1 :]) == (1, [2] + [0] * (len(ids) - length))
                assert ids[1 : length - 1] == data.train.texts.text.ids(pair).tolist()
                assert data.names[int(batch.labels_b[row])] == ROWS[pair][0]
            seen += batch.pairs_b.tolist()
        assert sorted(seen) == list(range(60))
    assert max(batch.ids_bs.numel() for batch in list(batches.epoch(0))[:3]) <= int(
        batches.largest().ids_bs.numel()
    )


def test_an_epoch_begun_in_the_middle_goes_on_as_if_never_stopped(folder: Folder) -> None:
    data = folder.prepare(folder.rows(ROWS))
    whole = list(make(data).epoch(1))
    for start in (0, 3, len(whole)):
        assert all(map(same, make(data).epoch(1, start), whole[start:]))
        assert len(list(make(data).epoch(1, start))) == len(whole) - start
    assert make(data).count(1) == len(whole)
    assert not all(map(same, make(data).epoch(0), whole))
    assert all(map(same, make(data).fixed(), make(data, seed=5).fixed()))
