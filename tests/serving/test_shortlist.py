"""A run's shortlist: made by a command, bound to the vocabularies, used by either engine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import fill
from serving.command import Command
from serving.tiny_runs import TEXT, make_run, tokenizer

import regard
from regard.engine import native
from regard.errors import DataError, RegardError, RunFolderError
from regard.serving.quantize import quantize
from regard.serving.shortlist import make_shortlist
from regard.text.corpus import CorpusWriter, Tokenizers
from regard.text.prepared import PreparedFolder
from regard.text.shortlist import Shortlist
from regard.text.vocabulary import framed
from regard.weights.layout import PREPARED_TEXT, SHORTLIST
from regard.weights.lock import LOCK
from regard.weights.manifest import MANIFEST
from regard.weights.run_folder import RunFolder
from regard.weights.shortlists import read_shortlist, write_shortlist

SOURCE, TARGET = TEXT[:2] * 2, TEXT[2:] * 2
needs_engine = pytest.mark.skipif(not native.available(), reason="the engine is not built")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A text and its translation."""
    paths = [tmp_path / "train.en", tmp_path / "train.de"]
    for path, lines in zip(paths, (SOURCE, TARGET), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


@pytest.fixture
def made(tmp_path: Path, files: list[Path]) -> Path:
    """A run with a shortlist."""
    run = make_run(tmp_path / "run")
    make_shortlist(run, source=files[:1], target=files[1:], per_token=4, frequent=5)
    return run


def opened(run: Path) -> Shortlist:
    return read_shortlist(RunFolder.open(run), regard.load(run).tokenizers)


def test_the_command_makes_one_of_given_text_and_translate_uses_it(
    tmp_path: Path, files: list[Path], command: Command
) -> None:
    run = make_run(tmp_path / "run")
    source, target = files
    done = command(
        "shortlist", run, "--source", source, "--target", target, "--per-token=4", "--frequent=5"
    )
    assert done.code == 0, done.err
    assert "learned from 4 pairs; a sentence may use " in done.out.decode()
    text = "".join(f"{line}\n" for line in TEXT).encode()
    for options in (["--engine=torch"], ["--engine=native"]) if native.available() else ([],):
        plain = command("translate", run, *options, stdin=text)
        short = command("translate", run, *options, "--shortlist", stdin=text)
        assert (short.code, len(short.lines)) == (0, 4)
        assert short.out != plain.out
        done = command("evaluate", run, "--source", source, "--reference", target, "--shortlist")
        assert done.code == 0, done.err
    assert command("doctor", run).out.decode().count("good") >= 5


@needs_engine
@pytest.mark.parametrize(
    "options",
    [{"beam": 1}, {"beam": 4, "n_best": 3}, {"method": "sample", "n_best": 2, "seed": 3}],
    ids=str,
)
def test_both_engines_give_the_same_text_and_only_what_is_allowed(
    made: Path, options: dict[str, Any]
) -> None:
    lines, prefixes = [*TEXT, " ".join(TEXT)], ["", "Danke", "", "das", ""]
    native_, torch_ = (
        regard.load(made, engine=engine, shortlist=True) for engine in ("native", "torch")
    )
    ours = native_.translations(lines, prefixes=prefixes, **options)
    theirs = torch_.translations(lines, prefixes=prefixes, **options)
    assert [[each.text for each in one.hypotheses] for one in ours] == [
        [each.text for each in one.hypotheses] for one in theirs
    ]
    shortlist, vocabulary = opened(made), native_.tokenizers.target
    for line, prefix, found in zip(TEXT, prefixes, ours, strict=False):
        ids = framed(vocabulary, vocabulary.encode(line))
        allowed = set(shortlist.allowed(ids, vocabulary.encode(prefix)).tolist())
        for each in found.hypotheses:
            assert allowed.issuperset(each.tokens)
    pairs = list(zip(SOURCE, TARGET, strict=True))
    assert native_.judge(pairs).bleu == torch_.judge(pairs).bleu
    assert native_.translations(TEXT, alignments=True)[0].alignment is not None


def test_it_learns_from_the_runs_own_text(tmp_path: Path, files: list[Path]) -> None:
    run = make_run(tmp_path / "run")
    vocabulary = tokenizer()
    prepare(run, Tokenizers(vocabulary, vocabulary))
    make_shortlist(run, per_token=4, frequent=5)
    mine = opened(run)
    make_shortlist(run, source=files[:1], target=files[1:], per_token=4, frequent=5)
    its = opened(run)
    assert np.array_equal(mine.tokens, its.tokens)
    assert np.array_equal(mine.always, its.always)


def test_learning_twice_makes_the_same_file(tmp_path: Path, files: list[Path]) -> None:
    run = make_run(tmp_path / "run")
    made = set()
    for _ in range(4):
        make_shortlist(run, source=files[:1], target=files[1:])
        made.add((run / SHORTLIST).read_bytes())
    assert len(made) == 1


def prepare(run: Path, tokenizers: Tokenizers) -> None:
    """What training leaves of the text."""
    folder = PreparedFolder(
        path=run / PREPARED_TEXT,
        index="corpus.json",
        key={"train": []},
        trained={},
        given=None,
        expected=None,
        names=[],
    )
    writer = CorpusWriter(folder.begin(), tokenizers.source.size, tokenizers.target.size)
    writer.write(
        tokenizers.source.encode_batch(SOURCE), tokenizers.target.encode_batch(TARGET), range(4)
    )
    writer.close()
    folder.finish((tokenizers.source, tokenizers.target), [], {})


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_leaves_nothing_or_what_the_next_one_removes(
    made: Path, tmp_path: Path, files: list[Path], number: signal.Signals
) -> None:
    """Sent while it waits for its text: what is built aside is beside what it is for."""
    names = {each.name for each in made.iterdir()}
    system = tmp_path / "system"
    system.mkdir()
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "shortlist", str(made),
         "--source", str(tmp_path / "pipe"), "--target", str(files[1])],
        env={**os.environ, "TMPDIR": str(system)},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    while not (aside := {each.name for each in made.iterdir()} - names):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert list(system.iterdir()) == []
    left = {each.name for each in made.iterdir()} - names
    if number is signal.SIGKILL:
        assert left == aside
        make_shortlist(made, source=files[:1], target=files[1:])
        left = {each.name for each in made.iterdir()} - names
    else:
        assert (process.returncode, said) == (130, "interrupted\n")
    assert left == set()


def test_a_full_disk_names_the_shortlist_and_leaves_the_former(
    made: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each.name: each.read_bytes() for each in made.iterdir()}

    def no_space(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("source.tokens.bin", SHORTLIST):
        with monkeypatch.context() as patched:
            if name == SHORTLIST:
                patched.setattr("regard.serving.shortlist.learn_lexicon", no_space)
            else:
                fill(patched, name)
            with pytest.raises(RegardError) as caught:
                make_shortlist(made, source=files[:1], target=files[1:])
        assert caught.value.where.startswith(str(made))
        assert caught.value.where.endswith(name)
        assert caught.value.problem == "cannot be written: No space left on device"
        assert {each.name: each.read_bytes() for each in made.iterdir()} == before


def test_control_tokens_and_the_end_may_always_come(made: Path) -> None:
    vocabulary = regard.load(made).tokenizers.target
    assert set(opened(made).always.tolist()) >= vocabulary.control_ids | {vocabulary.eos_id}


def test_text_of_other_vocabularies_or_none_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(DataError, match="was trained on is not there") as caught:
        make_shortlist(run)
    assert f"regard shortlist {run} --source train.source --target" in str(caught.value)
    other = tokenizer(290)
    prepare(run, Tokenizers(other, other))
    with pytest.raises(DataError, match="was prepared with other vocabularies"):
        make_shortlist(run)


def test_damaged_text_and_that_of_another_version_is_not_learned_from(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    vocabulary = tokenizer()
    prepare(run, Tokenizers(vocabulary, vocabulary))
    index = run / PREPARED_TEXT / "corpus.json"
    whole = index.read_text()
    earlier = {name: it for name, it in json.loads(whole).items() if name not in ("sum", "sums")}
    index.write_text(json.dumps(earlier))
    with pytest.raises(DataError, match="data: another version of regard prepared the text\n"):
        make_shortlist(run)
    index.write_text(whole)
    tokens = run / PREPARED_TEXT / "target.tokens.bin"
    tokens.write_bytes(bytes([tokens.read_bytes()[0] ^ 1]) + tokens.read_bytes()[1:])
    with pytest.raises(DataError, match=f"{tokens}: the prepared text is damaged\n"):
        make_shortlist(run)


def test_bad_options_are_refused(tmp_path: Path, files: list[Path], command: Command) -> None:
    run = make_run(tmp_path / "run")
    done = command("shortlist", run, "--source", files[0])
    assert (done.code, "got 1 source file and 0 target files" in done.err) == (2, True)
    for name, value in (("per_token", -1), ("frequent", -2)):
        with pytest.raises(RegardError, match=f"{name}: expected a whole number of at least 0"):
            make_shortlist(run, **{name: value})
    done = command(
        "shortlist", run, "--source", files[0], "--target", files[1], "--per-token=0",
        "--frequent=0",
    )  # fmt: skip
    assert (done.code, done.out, done.err) == (
        2,
        b"",
        "error: per_token, frequent: both are 0, which leaves a sentence no token to be "
        "translated with\n  Give one of them more.\n",
    )
    files[1].write_text("\n\n\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="no pair of the text has words on both sides"):
        make_shortlist(run, source=files[:1], target=files[1:])
    assert SHORTLIST not in RunFolder.open(run).files


def test_a_run_without_one_says_how_to_make_it(tmp_path: Path, command: Command) -> None:
    run = make_run(tmp_path / "run")
    done = command("translate", run, "--shortlist", stdin=b"light\n")
    assert (done.code, done.out) == (2, b"")
    assert f"{run}: the run has no shortlist\n  Make one: regard shortlist {run}" in done.err


@pytest.mark.parametrize("harm", ["whole", "damaged", "lost", "not listed"])
def test_drop_removes_it_and_touches_nothing_else(
    made: Path, harm: str, tmp_path: Path, command: Command
) -> None:
    path = made / SHORTLIST
    without = make_run(tmp_path / "without")
    if harm == "damaged":
        path.write_bytes(b"x")
    elif harm == "lost":
        path.unlink()
    elif harm == "not listed":  # a crash came between the list and the file
        (made / MANIFEST).write_bytes((without / MANIFEST).read_bytes())
    done = command("shortlist", made, "--drop")
    assert (done.code, done.out.decode(), done.err) == (0, f"{path}: removed\n", "")
    ours, others = (
        {each.name: each.read_bytes() for each in run.iterdir() if each.name != LOCK}
        for run in (made, without)
    )
    assert ours == others
    done = command("shortlist", made, "--drop")
    assert (done.code, done.err) == (2, f"error: {made}: the run has no shortlist\n")


def test_drop_goes_with_nothing_that_says_how_to_make_one(
    made: Path, files: list[Path], command: Command
) -> None:
    before = (made / SHORTLIST).read_bytes()
    for option in ("--source=a", "--target=b", "--per-token=0", "--frequent=100"):
        done = command("shortlist", made, "--drop", option)
        problem = f"error: {option.partition('=')[0]}: cannot go with --drop\n"
        assert (done.code, done.err) == (2, f"{problem}  Give one of the two.\n")
    with RunFolder.open(made, write=True):  # another is at work in it
        done = command("shortlist", made, "--drop")
    assert (done.code, "is writing to this run folder" in done.err) == (2, True)
    assert (made / SHORTLIST).read_bytes() == before


def test_a_damaged_one_is_refused_and_says_how_to_make_it_again(made: Path) -> None:
    path = made / SHORTLIST
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(RunFolderError, match="SHA-256") as caught:
        regard.load(made, shortlist=True)
    assert f"Make it again: regard shortlist {made}" in str(caught.value)
    path.unlink()
    with pytest.raises(RunFolderError, match="the file is missing"):
        regard.load(made, shortlist=True)
    regard.load(made)  # without it nothing is amiss


def test_one_of_another_vocabulary_is_refused(made: Path, tmp_path: Path) -> None:
    text = [*TEXT, "something else entirely"]
    other = make_run(tmp_path / "other", source=tokenizer(text=text))
    with RunFolder.open(other, write=True) as run:
        run.replace({SHORTLIST: [(made / SHORTLIST).read_bytes()]})
    with pytest.raises(RunFolderError, match="is of another source vocabulary than the run's"):
        regard.load(other, shortlist=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokens": np.array([3, 280], np.int32)}, "hold the target id 280, and the vocabulary"),
        ({"tokens": np.array([3, -7], np.int32)}, "hold the target id -7"),
        ({"always": np.array([2**31 - 1], np.int32)}, "hold the target id 2,147,483,647"),
        ({"offsets": np.array([0, 3], np.int64)}, "do not cover its 2 tokens"),
        ({"offsets": np.array([0, 2], np.int64)}, "it has 1 row, and the source vocabulary 280"),
        ({"offsets": np.array([0, 2, 1, 2], np.int64)}, "ends before it begins"),
        ({"tokens": np.array([3.0, 4.0], np.float32)}, "tokens is no list of integers"),
        ({"tokens": np.array([[3, 4]], np.int32)}, "tokens is no list of integers"),
        ({"always": np.array([0], np.int32)}, "does not let every sentence end"),
        ({"strange": np.array([0], np.int32)}, "expected the arrays offsets, tokens, always, got"),
    ],
    ids=str,
)
def test_a_hostile_table_is_refused_before_it_is_used(
    made: Path, changes: dict[str, Any], said: str
) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save

    with safe_open(made / SHORTLIST, "np") as stream:
        notes = stream.metadata()
    good = {
        "offsets": np.full(281, 2, np.int64),
        "tokens": np.array([3, 4], np.int32),
        "always": np.array([0, 1, 2, 3], np.int32),
    }
    good["offsets"][0] = 0
    for arrays in (good, good | changes):
        with RunFolder.open(made, write=True) as run:
            run.replace({SHORTLIST: [save(arrays, metadata=notes)]})
        if arrays is good:
            regard.load(made, shortlist=True)
    with pytest.raises(RunFolderError, match=said) as caught:
        regard.load(made, shortlist=True)
    assert str(made / SHORTLIST) in str(caught.value)
    assert "Make it again: regard shortlist" in str(caught.value)


def test_what_is_no_safetensors_file_is_refused(made: Path) -> None:
    with RunFolder.open(made, write=True) as run:
        run.replace({SHORTLIST: [b"something else"]})
    with pytest.raises(RunFolderError, match="not a whole safetensors file"):
        regard.load(made, shortlist=True)


def test_an_ensemble_has_none(made: Path) -> None:
    with pytest.raises(RegardError, match="a shortlist is one run's"):
        regard.load([made, made], shortlist=True)


@needs_engine
def test_it_goes_with_a_packed_run_and_can_be_made_for_one(
    made: Path, tmp_path: Path, files: list[Path]
) -> None:
    quantize(made, tmp_path / "packed", "int8")
    mine = regard.load(tmp_path / "packed", shortlist=True)
    its = regard.load(made, engine="native", dtype="int8", shortlist=True)
    assert mine.translations(TEXT) == its.translations(TEXT)
    assert mine.translations(TEXT) != regard.load(tmp_path / "packed").translations(TEXT)
    make_shortlist(tmp_path / "packed", source=files[:1], target=files[1:], per_token=1, frequent=0)
    assert len(opened(tmp_path / "packed").tokens) < len(opened(made).tokens)


def test_it_is_written_in_one_step(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened(made)
    with RunFolder.open(made, write=True) as run:
        tokenizers = regard.load(made).tokenizers
        monkeypatch.setattr("regard.weights.files._rename", _fail)
        with pytest.raises(RunFolderError):
            write_shortlist(run, before, tokenizers, {"pairs": "1"})
    monkeypatch.undo()
    assert np.array_equal(opened(made).tokens, before.tokens)


def _fail(old: Path, new: Path) -> None:
    raise OSError(28, "No space left on device")
