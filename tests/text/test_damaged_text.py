"""Prepared text that is no longer what was written, and text that is no longer what it was."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from full_disk import FULL, fill

from regard.errors import DataError
from regard.text.config import DataConfig, LabelsConfig, TextConfig, VocabularyConfig
from regard.text.corpus import prepare_corpus
from regard.text.documents import prepare_text
from regard.text.labels import prepare_labels

LINES = [f"The {noun} is on." for noun in ("light", "door", "lamp", "fan", "lock", "bell")] * 9
SIDES = {"en": LINES, "de": [f"{line} ja" for line in LINES], "tsv": [f"a\t{x}" for x in LINES]}
SIDES["tsv"][::2] = [f"b{line[1:]}" for line in SIDES["tsv"][::2]]
WORDS = VocabularyConfig(kind="char", size=300)

Prepare = Callable[..., str]


def files(folder: Path) -> None:
    for name in ("train", "dev"):
        for ending, lines in SIDES.items():
            (folder / f"{name}.{ending}").write_text("\n".join(lines) + "\n")


def pairs(folder: Path, log: list[str], expected: str | None = None) -> str:
    config = DataConfig(
        source=(f"{folder}/train.en",),
        target=(f"{folder}/train.de",),
        valid_source=f"{folder}/dev.en",
        valid_target=f"{folder}/dev.de",
    )
    vocabulary = VocabularyConfig(size=280, joint=False)
    done = prepare_corpus(config, vocabulary, folder / "data", expected=expected, log=log.append)
    return done.train.fingerprint


def documents(folder: Path, log: list[str], expected: str | None = None) -> str:
    config = TextConfig(text=(f"{folder}/train.en",), valid_text=f"{folder}/dev.en")
    done = prepare_text(config, WORDS, folder / "data", expected=expected, log=log.append)
    return done.train.fingerprint


def labels(folder: Path, log: list[str], expected: str | None = None) -> str:
    config = LabelsConfig(train=(f"{folder}/train.tsv",), valid=f"{folder}/dev.tsv")
    done = prepare_labels(
        config, WORDS, folder / "data", max_tokens=50, expected=expected, log=log.append
    )
    return done.train.texts.fingerprint


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("prepare", [pairs, documents, labels])
def test_one_bit_that_flipped_anywhere_in_the_prepared_text_is_named_and_made_good(
    prepare: Prepare, tmp_path: Path
) -> None:
    files(tmp_path)
    expected = prepare(tmp_path, [])
    made = contents(tmp_path / "data")
    assert len(made) >= 7
    for name, whole in made.items():
        few = {0, len(whole) // 2, len(whole) - 2}
        for place in range(0, len(whole) - 4, 97) if b"fingerprint" in whole else few:
            if whole[place : place + 1].isspace():
                continue
            path = tmp_path / "data" / name
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            log: list[str] = []
            assert prepare(tmp_path, log, expected) == expected
            assert log[0] == f"text: damaged, so the text is prepared again: {path}"
            assert contents(tmp_path / "data") == made


@pytest.mark.parametrize("prepare", [pairs, documents, labels])
def test_text_of_another_version_is_not_called_damaged_and_is_prepared_again(
    prepare: Prepare, tmp_path: Path
) -> None:
    files(tmp_path)
    expected = prepare(tmp_path, [])
    made = contents(tmp_path / "data")
    (index,) = (tmp_path / "data" / name for name in made if b"fingerprint" in made[name])
    now = json.loads(made[index.name])
    # 0.1.0 knew the files' sizes alone; one to come may have another number.
    earlier = {name: value for name, value in now.items() if name not in ("format", "sum", "sums")}
    later = {**now, "format": 2}
    del later["sum"]
    later["sum"] = hashlib.sha256(json.dumps(later).encode("utf-8")).hexdigest()
    for other in ({**earlier, "sizes": {}}, later):
        index.write_text(json.dumps(other, indent=1), encoding="utf-8")
        log: list[str] = []
        assert prepare(tmp_path, log, expected) == expected
        assert log[0] == (
            f"text: another version of regard prepared it, so the text is prepared again: {index}"
        )
        assert contents(tmp_path / "data") == made
    for damaged in ({**now, "format": 2}, {**earlier, "sums": now["sums"]}, {"key": 1}, []):
        index.write_text(json.dumps(damaged), encoding="utf-8")
        log = []
        assert prepare(tmp_path, log, expected) == expected
        assert log[0] == f"text: damaged, so the text is prepared again: {index}"
    # What was prepared before there was a number is as good as ever.
    unnumbered = {name: value for name, value in now.items() if name not in ("format", "sum")}
    unnumbered["sum"] = hashlib.sha256(json.dumps(unnumbered).encode("utf-8")).hexdigest()
    index.write_text(json.dumps(unnumbered, indent=1), encoding="utf-8")
    log = []
    assert prepare(tmp_path, log, expected) == expected
    assert log[0].startswith("text: nothing changed, using what is prepared in ")


@pytest.mark.parametrize("prepare", [pairs, documents, labels])
def test_a_prepared_file_that_is_lost_or_emptied_is_named_and_made_good(
    prepare: Prepare, tmp_path: Path
) -> None:
    files(tmp_path)
    expected = prepare(tmp_path, [])
    made = contents(tmp_path / "data")
    index = next(name for name in made if name in ("corpus.json", "text.json", "labels.json"))
    for name in made.keys() - {index}:
        path = tmp_path / "data" / name
        for spoil in (path.unlink, lambda path=path: path.write_bytes(b"")):
            spoil()
            log: list[str] = []
            assert prepare(tmp_path, log, expected) == expected
            assert log[0] == f"text: damaged, so the text is prepared again: {path}"
            assert contents(tmp_path / "data") == made


@pytest.mark.skipif(not FULL.exists(), reason="there is no full device")
@pytest.mark.parametrize("prepare", [pairs, documents, labels])
def test_a_full_disk_names_the_file_and_leaves_what_was_prepared(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path)
    prepare(tmp_path, [])
    before = contents(tmp_path / "data")
    for ending in SIDES:
        path = tmp_path / f"train.{ending}"
        path.write_text(path.read_text().replace("bell", "ball"))
    for name in before:
        with monkeypatch.context() as patched:
            fill(patched, name)
            with pytest.raises(DataError) as refused:
                prepare(tmp_path, [])
        assert str(refused.value) == (
            f"{tmp_path / 'data' / 'partial' / name}: cannot be written: No space left on device\n"
            "  Free some space, then begin again."
        )
        shutil.rmtree(tmp_path / "data" / "partial")  # as the next one does
        assert contents(tmp_path / "data") == before
    prepare(tmp_path, [])
    assert contents(tmp_path / "data").keys() == before.keys()


@pytest.mark.parametrize("prepare", [pairs, documents, labels])
@pytest.mark.parametrize("damage", [False, True])
def test_text_that_changed_is_refused_though_what_was_prepared_of_it_is_damaged(
    prepare: Prepare, damage: bool, tmp_path: Path
) -> None:
    files(tmp_path)
    expected = prepare(tmp_path, [])
    for ending in SIDES:
        with (tmp_path / f"train.{ending}").open("a") as stream:
            stream.write("a\tmore\n" if ending == "tsv" else "more\n")
    if damage:
        path = next((tmp_path / "data").glob("*.tokens.bin"))
        path.write_bytes(b"\xff" + path.read_bytes()[1:])
    with pytest.raises(DataError, match="the training text is not what the run was trained on"):
        prepare(tmp_path, [], expected)


@pytest.mark.parametrize(
    ("prepare", "changed", "start"),
    [
        (pairs, ["train.de"], "{train.de}: the training text is not what the run was trained on"),
        (
            pairs,
            ["dev.en", "dev.de"],
            "{dev.en}, {dev.de}: the validation text is not what the run was validated on",
        ),
        (
            pairs,
            ["train.en", "train.de", "dev.de"],
            "{train.en}, {train.de}: the training text is not what the run was trained on, and "
            "the validation text is another too: {dev.de}",
        ),
        (documents, ["dev.en"], "{dev.en}: the validation text is not what the run was"),
        (documents, ["train.en"], "{train.en}: the training text is not what the run was"),
        (labels, ["dev.tsv"], "{dev.tsv}: the validation text is not what the run was"),
        (labels, ["train.tsv"], "{train.tsv}: the training text is not what the run was"),
    ],
)
def test_of_all_files_those_that_changed_are_named(
    prepare: Prepare, changed: list[str], start: str, tmp_path: Path
) -> None:
    files(tmp_path)
    expected = prepare(tmp_path, [])
    for name in changed:
        path = tmp_path / name
        path.write_text(path.read_text().replace("bell", "ball"))
        start = start.replace(f"{{{name}}}", str(path))
    made = contents(tmp_path / "data")
    with pytest.raises(DataError) as refused:
        prepare(tmp_path, [], expected)
    assert str(refused.value).split("\n")[0].startswith(start)
    assert contents(tmp_path / "data") == made


@pytest.mark.parametrize("prepare", [pairs, documents, labels])
def test_where_it_is_not_known_which_file_changed_all_are_named(
    prepare: Prepare, tmp_path: Path
) -> None:
    files(tmp_path)
    prepare(tmp_path, [])
    log: list[str] = []
    with pytest.raises(DataError, match=r"dev\.\w+: the training or the validation text is not"):
        prepare(tmp_path, log, "another")
