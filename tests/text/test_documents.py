import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.text import passages
from regard.text.config import TextConfig, VocabularyConfig
from regard.text.documents import COPIED_CHARACTERS, PreparedText, prepare_text
from regard.text.passages import LONGEST_PART, read_parts, survey_text
from regard.text.tokenizer import Tokenizer

NOUNS = ["light", "door", "lamp", "switch", "sensor", "window", "heater", "fan", "lock", "bell"]
PLACES = ["kitchen", "garage", "hall", "cellar", "attic", "garden"]
LINES = [f"The {noun} in the {place} is on." for noun in NOUNS for place in PLACES]
CHARACTERS = VocabularyConfig(kind="char", size=400)


class Folder:
    """A folder with text files in it, and what was logged while preparing them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log: list[str] = []

    def write(self, name: str, data: str | bytes) -> str:
        path = self.path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)

    def prepare(self, *texts: str, **settings: Any) -> PreparedText:
        self.log.clear()
        vocabulary = settings.pop("vocabulary", None)
        expected = settings.pop("expected", None)
        return prepare_text(
            TextConfig(text=texts, **settings),
            settings.pop("kind", CHARACTERS),
            self.path / "data",
            vocabulary=vocabulary,
            expected=expected,
            log=self.log.append,
        )

    def refused(self, *texts: str, **settings: Any) -> str:
        with pytest.raises(DataError) as caught:
            self.prepare(*texts, **settings)
        assert not (self.path / "data").exists()
        return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def texts(data: PreparedText, name: str = "train") -> list[str]:
    corpus = getattr(data, name)
    return [data.vocabulary.decode(corpus.text.ids(index).tolist()) for index in range(len(corpus))]


def test_a_file_is_a_document_whose_last_part_is_held_out(folder: Folder) -> None:
    path = folder.write("a.txt", "\n".join(LINES))
    data = folder.prepare(path, valid_share=0.25)
    [train], [valid] = texts(data), texts(data, "valid")
    assert train + "\n" + valid == "\n".join(LINES)
    assert len(valid) == pytest.approx(0.25 * len("\n".join(LINES)), abs=40)
    assert data.train.line(0) == (path, 1)
    assert data.valid.line(0) == (path, 1 + train.count("\n") + 1)
    assert data.counts == {
        "read": 1,
        "kept": 1,
        "empty": 0,
        "held_out": 0,
        "tokens": len(train),
        "valid_tokens": len(valid),
    }


@pytest.mark.parametrize("documents", ["line", "blank"])
def test_documents_are_held_out_by_their_text(folder: Folder, documents: str) -> None:
    blocks = LINES if documents == "line" else [f"{line}\n{line[:9]}" for line in LINES]
    between = "\n" if documents == "line" else "\n \n\n"
    path = folder.write("a.txt.gz", gzip.compress(("\n" + between.join(blocks)).encode()))
    data = folder.prepare(path, documents=documents, valid_share=0.3)
    train, valid = texts(data), texts(data, "valid")
    assert sorted(train + valid) == sorted(blocks)
    assert train == [block for block in blocks if block in set(train)]
    assert 0.1 < len(valid) / len(blocks) < 0.5
    step = 1 if documents == "line" else 4
    assert data.train.line(3) == (path, 2 + step * blocks.index(train[3]))
    assert data.counts["read"] == len(train) + len(valid) + (documents == "line")
    again = folder.write("b.txt", between.join(reversed(blocks)))
    assert sorted(texts(folder.prepare(again, documents=documents, valid_share=0.3))) == sorted(
        train
    )


def test_several_files_know_their_lines(folder: Folder) -> None:
    paths = [folder.write("a", "x\n\ny\nz"), folder.write("b", "\n"), folder.write("c", "\nw")]
    data = folder.prepare(*paths, documents="line", valid_text=paths[0])
    assert texts(data) == ["x", "y", "z", "w"]
    assert [data.train.line(index) for index in range(4)] == [
        (paths[0], 1), (paths[0], 3), (paths[0], 4), (paths[2], 2)
    ]  # fmt: skip
    assert texts(data, "valid") == ["x", "y", "z"]
    assert data.valid.line(2) == (paths[0], 4)
    assert data.counts["empty"] == 3


def test_a_text_too_small_to_split_is_validated_on_itself(folder: Folder) -> None:
    path = folder.write("a", "one line\n\n\n")
    empty = folder.write("b", " \n")
    data = folder.prepare(empty, path)
    assert texts(data) == texts(data, "valid") == ["one line\n\n"]
    assert data.valid.line(0) == (path, 1)
    assert data.counts["kept"] == data.counts["empty"] == 1
    assert folder.log[-2] == (
        "text: 1 document can't be split; validating on 1 training document, so the figures say "
        "nothing of unseen text"
    )
    twins = folder.write("c", "twin 1\ntwin 2\ntwin 3\n")
    data = folder.prepare(twins, documents="line", valid_share=0.99)
    assert texts(data) == texts(data, "valid") == ["twin 1", "twin 2", "twin 3"]


@pytest.mark.parametrize("documents", ["file", "blank"])
@pytest.mark.parametrize("kind", ["char", "bpe", "unigram"])
def test_a_long_document_is_tokenised_in_parts_without_loss(
    folder: Folder, kind: str, documents: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "PART_CHARACTERS", 50)
    path = folder.write("a", "\n".join(LINES).replace("e ", "e\n  "))
    config = VocabularyConfig(kind=kind, size=300)  # type: ignore[arg-type]
    vocabulary = Tokenizer.train(iter(LINES), config)
    data = folder.prepare(path, documents=documents, vocabulary=vocabulary, valid_text=path)
    assert texts(data) == texts(data, "valid") == [Path(path).read_text()]
    whole = vocabulary.encode(Path(path).read_text())
    assert data.train.text.ids(0).tolist() == whole


def test_a_line_without_end_is_cut_into_parts_and_validated_on_in_part(folder: Folder) -> None:
    line = "ab " * 1_100_000
    path = folder.write("a", line)
    found = survey_text((path,), "file", 0.0, lambda _: None)
    parts = [part.text for part in read_parts(path, found)]
    assert "".join(parts) == line
    assert len(parts) == 4
    assert max(map(len, parts)) <= LONGEST_PART
    assert all(part.startswith(" ") for part in parts[1:])
    vocabulary = Tokenizer.train(iter(["ab ab"]), VocabularyConfig(size=280))
    data = folder.prepare(path, vocabulary=vocabulary)
    [train], [valid] = texts(data), texts(data, "valid")
    assert f"{train} {valid}" == line
    assert len(valid) == pytest.approx(0.1 * len(line), abs=4)
    assert data.valid.line(0) == (path, 1)


def test_a_text_that_nothing_is_held_out_of_is_validated_on_in_part(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "SHORTEST_CUT", 1 << 30)
    line = "ab " * 1_100_000
    vocabulary = Tokenizer.train(iter(["ab ab"]), VocabularyConfig(size=280))
    data = folder.prepare(folder.write("a", line), vocabulary=vocabulary)
    [train], [valid] = texts(data), texts(data, "valid")
    assert train == line
    assert COPIED_CHARACTERS <= len(valid) < COPIED_CHARACTERS + LONGEST_PART
    assert line.startswith(valid)


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [("", "one two ", ""), ("", "no_space", "\n"), ("title\n\n", "drei vier ", "\n\n"),
     ("\n  \n", "  fünf sechs ", "\n \n\n")],
)  # fmt: skip
def test_the_last_part_of_a_long_line_is_held_out(
    folder: Folder, before: str, line: str, after: str
) -> None:
    text = before + line * 1000 + after
    path = folder.write("a", text)
    data = folder.prepare(path, valid_share=0.2)
    [train], [valid] = texts(data), texts(data, "valid")
    between = " " if " " in line else ""
    assert train + between + valid == text.removesuffix("\n")
    assert len(valid) == pytest.approx(0.2 * len(text), abs=20)
    assert data.valid.line(0) == (path, 1 + before.count("\n"))
    assert not any("can't be split" in told for told in folder.log)


@pytest.mark.parametrize("share", [1e-18, 1 - 1e-16])
def test_a_cut_line_has_text_on_both_sides(folder: Folder, share: float) -> None:
    data = folder.prepare(folder.write("a", " " + "x" * 5000 + " \n\n"), valid_share=share)
    [train], [valid] = texts(data), texts(data, "valid")
    assert train.strip()
    assert valid.strip()


@pytest.mark.parametrize("text", ["two\nlines", "two\nlines\n", "\n", "\r\nGrüße\r\n"])
def test_characters_are_counted_as_they_are(folder: Folder, text: str) -> None:
    folder.prepare(folder.write("a", text), folder.write("b", "b"))
    assert folder.log[0].split(" in ")[0] in {
        f"text: {len(text.replace(chr(13), ''))} character{'s' * (len(text) > 1)}"
    }


@pytest.mark.parametrize("option", ["text", "valid_text"])
def test_a_pipe_is_refused_at_once(folder: Folder, option: str) -> None:
    pipe = str(folder.path / "pipe")
    os.mkfifo(pipe)
    good = folder.write("good", "\n".join(LINES))
    settings = {"valid_text": pipe} if option == "valid_text" else {}
    assert folder.refused(good if settings else pipe, **settings) == (
        f"{pipe}: it must be a regular file, because it is read more than once\n"
        "  write the text to a file first"
    )


@given(st.lists(st.sampled_from(["a", "", " ", "b c", "\t", "ddd", "eee f g" * 3]),
                min_size=1, max_size=40),
       st.integers(1, 12), st.floats(0.01, 0.99))  # fmt: skip
def test_no_character_of_a_file_is_lost_or_seen_twice(
    folder: Folder, lines: list[str], part: int, share: float
) -> None:
    text = "\n".join(lines)
    path = folder.write("a", text + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passages, "PART_CHARACTERS", part)
        patch.setattr(passages, "LONGEST_PART", 2 * part)
        patch.setattr(passages, "SHORTEST_CUT", part + 1)
        patch.setattr(passages, "NEAR", part)
        if not text.strip():
            with pytest.raises(DataError):
                survey_text((path,), "file", share, lambda _: None)
            return
        found = survey_text((path,), "file", share, lambda _: None)
        parts = list(read_parts(path, found))
    train = "".join(part.text for part in parts if not part.held_out)
    valid = "".join(part.text for part in parts if part.held_out)
    assert train.strip()
    cut = found.cuts[path]
    if cut is None:
        assert (train, valid) == (text, "")
    elif cut.in_line:
        assert valid.strip()
        assert text in {train + valid, f"{train} {valid}"}
    else:
        assert valid.strip()
        assert train + "\n" + valid == text
        # The line that the cut falls in is the last to train on.
        assert len(train) + 1 >= (1 - share) * (len(text) + 1)
    for held_out in {part.held_out for part in parts}:
        some = [part for part in parts if part.held_out == held_out]
        assert [part.first for part in some] == [True] + [False] * (len(some) - 1)
        assert [part.last for part in some] == [False] * (len(some) - 1) + [True]


def test_what_is_prepared_is_used_again_until_something_changes(folder: Folder) -> None:
    path = folder.write("a", "\n".join(LINES))
    first = folder.prepare(path)
    again = folder.prepare(path)
    assert folder.log == [f"text: nothing changed, using what is prepared in {folder.path}/data"]
    assert again.train.fingerprint == first.train.fingerprint
    assert np.array_equal(again.train.text.tokens.array, first.train.text.tokens.array)
    assert again.counts == first.counts
    for change in ({"documents": "line"}, {"valid_share": 0.5}, {"valid_text": path}):
        other = folder.prepare(path, **change)
        assert len(folder.log) > 1
        assert other.train.fingerprint != first.train.fingerprint
    given = Tokenizer.train(iter(LINES), VocabularyConfig(size=300))
    assert folder.prepare(path, vocabulary=given).vocabulary.to_bytes() == given.to_bytes()
    folder.prepare(path, vocabulary=given)
    assert len(folder.log) == 1


def test_another_text_than_expected_is_refused_and_replaces_nothing(folder: Folder) -> None:
    path = folder.write("a", "\n".join(LINES))
    expected = folder.prepare(path).train.fingerprint
    assert folder.prepare(path, expected=expected).train.fingerprint == expected
    folder.write("a", "\n".join(LINES[1:]))
    with pytest.raises(DataError) as caught:
        folder.prepare(path, expected=expected)
    assert str(caught.value) == (
        f"{path}: the training text is not what the run was trained on\n"
        "  Bring the former files and settings back, or start a new run with --init."
    )
    folder.write("a", "\n".join(LINES))
    folder.prepare(path, expected=expected)
    assert len(folder.log) == 1


def test_the_vocabulary_sees_nothing_that_is_held_out(folder: Folder) -> None:
    path = folder.write("a", "\n".join(["abc"] * 50 + ["xyz"] * 5))
    data = folder.prepare(path, valid_share=0.05)
    assert texts(data, "valid")[0].endswith("xyz")
    assert data.vocabulary.size == 3 + 256 + len("abc\n") + len("xyz")
    data = folder.prepare(path, valid_share=0.2)
    assert data.vocabulary.size == 3 + 256 + len("abc\n")


def test_an_encoder_s_vocabulary_has_a_mask(folder: Folder) -> None:
    config = TextConfig(text=(folder.write("a", "\n".join(LINES)),))
    for mask in (True, False, True):
        data = prepare_text(config, CHARACTERS, folder.path / "d", mask=mask, log=lambda _: None)
        assert data.vocabulary.mask_id == (3 if mask else None)


def test_faulty_text_is_refused_before_anything_is_made(folder: Folder) -> None:
    good = folder.write("good", "\n".join(LINES))
    assert folder.refused() == "data: no training text is given\n  give data.text"
    assert folder.refused(good, "none.txt") == "none.txt: no such file\n  check the path"
    assert folder.refused(good, valid_text="none.txt") == "none.txt: no such file\n  check the path"
    path = folder.write("empty", "")
    assert folder.refused(good, path) == (
        f"{path}: the file is empty\n  it must hold at least one line"
    )
    path = folder.write("blank", " \n\n")
    for documents in ("file", "line", "blank"):
        assert folder.refused(path, documents=documents) == (
            f"{path}: wanted text, found nothing but blank lines"
        )
    path = folder.write("latin", b"good\nna\xefve\n")
    assert folder.refused(good, path) == (
        f"{path}, line 2: byte 3 of the line is 0xef, which is not valid UTF-8 here\n"
        "  convert the file, for example: iconv -f latin1 -t utf-8 OLD > NEW"
    )
