import gzip
import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from regard.errors import DataError
from regard.text import corpus as corpus_module
from regard.text import sampling
from regard.text.config import DataConfig, VocabularyConfig
from regard.text.corpus import PreparedData, Tokenizers, prepare_corpus
from regard.text.split import hash_of, twin_key
from regard.text.survey import VALIDATION_SALT
from regard.text.tokenizer import Tokenizer

NOUNS = ["light", "door", "lamp", "switch", "sensor", "window", "heater", "fan", "lock", "bell"]
PLACES = ["kitchen", "garage", "hall", "cellar", "attic", "garden"]
PAIRS = [
    (f"The {noun} in the {place}", f"Das {noun} im {place} ist hier")
    for noun in NOUNS
    for place in PLACES
]
VOCABULARY = VocabularyConfig(size=320)


class Folder:
    """A folder with text files in it, and what was logged while preparing them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log: list[str] = []

    def write(self, name: str, data: str | bytes) -> str:
        path = self.path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)

    def sides(self, pairs: list[tuple[str, str]], name: str = "train") -> tuple[str, str]:
        source = self.write(f"{name}.en", "".join(f"{pair[0]}\n" for pair in pairs))
        return source, self.write(f"{name}.de", "".join(f"{pair[1]}\n" for pair in pairs))

    def config(self, pairs: list[tuple[str, str]] = PAIRS, **settings: object) -> DataConfig:
        source, target = self.sides(pairs)
        return DataConfig(source=(source,), target=(target,), **settings)  # type: ignore[arg-type]

    def prepare(
        self,
        config: DataConfig,
        vocabulary: VocabularyConfig = VOCABULARY,
        tokenizers: Tokenizers | None = None,
    ) -> PreparedData:
        self.log.clear()
        return prepare_corpus(
            config, vocabulary, self.path / "data", tokenizers=tokenizers, log=self.log.append
        )

    def refused(self, config: DataConfig) -> str:
        with pytest.raises(DataError) as caught:
            self.prepare(config)
        assert not (self.path / "data").exists()
        return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def texts(data: PreparedData) -> list[tuple[str, str]]:
    source, target = data.tokenizers.source, data.tokenizers.target
    return [
        (
            source.decode(data.train.source.ids(index).tolist()),
            target.decode(data.train.target.ids(index).tolist()),
        )
        for index in range(len(data.train))
    ]


@pytest.mark.parametrize("joint", [True, False])
def test_the_arrays_hold_the_text_in_order(folder: Folder, joint: bool) -> None:
    valid = folder.sides(PAIRS[:3], "valid")
    config = folder.config(valid_source=valid[0], valid_target=valid[1])
    data = folder.prepare(config, VocabularyConfig(size=320, joint=joint))
    assert texts(data) == PAIRS
    assert data.tokenizers.joint == joint
    assert data.valid.source_lines == [source for source, _ in PAIRS[:3]]
    assert data.valid.target_lines == [target for _, target in PAIRS[:3]]
    assert data.train.line(7) == (f"{config.source[0]}, {config.target[0]}", 8)
    lengths = [len(data.train.target.ids(index)) for index in range(len(data.train))]
    assert data.train.target.lengths(np.arange(len(data.train))).tolist() == lengths
    assert data.counts["read"] == data.counts["kept"] == len(PAIRS)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_tsv_gives_what_two_files_give(folder: Folder, suffix: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    text = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
    path = folder.write(f"all.tsv{suffix}", pack(text.encode()))
    data = folder.prepare(DataConfig(tsv=(path,), valid_tsv=path))
    assert texts(data) == PAIRS
    assert data.valid.target_lines == [target for _, target in PAIRS]
    assert data.train.line(59) == (path, 60)


@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_pairs_left_out_are_counted_by_reason_and_the_rest_know_their_lines(
    folder: Folder, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "CHUNK_PAIRS", chunk)
    pairs = [
        *PAIRS[:2],
        ("", "leer"),
        ("blank", " \u2028"),
        ("much " * 80, "viel " * 80),
        ("x", "lang " * 20),
        PAIRS[2],
        ("x", "yyyyyy"),
    ]
    valid = folder.sides(PAIRS[:1], "valid")
    config = folder.config(
        pairs, valid_source=valid[0], valid_target=valid[1], max_tokens=64, max_ratio=4
    )
    data = folder.prepare(config)
    assert texts(data) == [*PAIRS[:3], pairs[-1]]
    assert [data.train.line(index)[1] for index in range(4)] == [1, 2, 7, 8]
    assert data.counts == {
        "read": 8, "kept": 4, "empty": 2, "too_long": 1, "ratio": 1, "held_out": 0
    }  # fmt: skip
    assert folder.log[-2:] == [
        "text: left out 4 of 8 pairs: 2 with an empty side, 1 with more than 64 tokens, "
        "1 with a length ratio over 4",
        "text: 4 pairs to train on",
    ]


def test_several_files_follow_each_other(folder: Folder) -> None:
    first = folder.write("1.tsv", "a\tb\n\tleft out\nc\td\n")
    second = folder.write("2.tsv", "\tleft out\ne\tf\n")
    data = folder.prepare(DataConfig(tsv=(first, second), valid_tsv=first))
    assert texts(data) == [("a", "b"), ("c", "d"), ("e", "f")]
    assert [data.train.line(index) for index in range(3)] == [(first, 1), (first, 3), (second, 2)]
    assert data.train.file_bounds == (0, 2, 3)


def test_what_is_held_out_shares_no_near_twin_with_what_is_trained_on(folder: Folder) -> None:
    pairs = [*PAIRS, *((f"{source.upper()}!", target) for source, target in PAIRS)]
    data = folder.prepare(folder.config(pairs, valid_pairs=10))
    held = data.valid.source_lines
    assert 6 <= len(held) <= 10
    assert data.counts["held_out"] == len(held) == len(pairs) - len(data.train)
    trained = {twin_key(source) for source, _ in texts(data)}
    assert not trained & {twin_key(source) for source in held}
    assert set(zip(held, data.valid.target_lines, strict=True)) <= set(pairs)
    assert folder.log[-1] == f"text: held {len(held)} pairs out, validating on {len(held)}"


def test_no_more_than_a_tenth_is_held_out(folder: Folder) -> None:
    data = folder.prepare(folder.config())
    assert 1 <= len(data.valid.source_lines) <= len(PAIRS) // 10


@pytest.mark.parametrize(("count", "counted"), [(1, "1 pair"), (3, "3 pairs")])
def test_one_pair_is_enough_to_train_on(folder: Folder, count: int, counted: str) -> None:
    data = folder.prepare(folder.config(PAIRS[:count]))
    assert texts(data) == PAIRS[:count]
    assert data.valid.source_lines[0] == PAIRS[0][0]
    training = counted.replace(" ", " training ")
    assert folder.log[-1] == (
        f"text: too short to hold any out ({counted}); validating on {training}, "
        "so the figures say nothing of unseen text"
    )


@pytest.mark.parametrize("times", [400, 2000])
def test_of_a_pair_many_times_over_none_is_held_out_and_it_is_said(
    folder: Folder, times: int
) -> None:
    data = folder.prepare(folder.config(PAIRS[:1] * times))
    assert len(data.train) == times
    assert data.counts["held_out"] == 0
    assert data.valid.source_lines == [PAIRS[0][0]] * 100
    assert folder.log[-1] == (
        f"text: all {times:,} pairs have nearly the same source, so none is held out; validating "
        "on 100 training pairs, so the figures say nothing of unseen text"
    )


def test_a_vocabulary_smaller_than_asked_for_is_said(folder: Folder) -> None:
    data = folder.prepare(folder.config(), VocabularyConfig(size=5000))
    size = data.tokenizers.source.size
    assert size < 600
    assert (
        f"vocabulary: {size} entries for both sides, bpe "
        "(5,000 were asked for; the text supplies no more)"
    ) in folder.log


def test_large_text_is_sampled_for_the_vocabulary_and_it_is_said(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_CHARACTERS", 900)
    data = folder.prepare(folder.config())
    assert texts(data) == [pair for pair in PAIRS if pair[0] not in data.valid.source_lines]
    assert any("learning from one pair in 4" in line for line in folder.log)


def test_what_did_not_change_is_used_again_and_what_changed_is_made_anew(folder: Folder) -> None:
    config = folder.config()
    first = folder.prepare(config)
    arrays = folder.path / "data" / "source.tokens.bin"
    made = arrays.stat().st_mtime_ns
    again = folder.prepare(config, VocabularyConfig(size=320, bpe_dropout=0.1))
    assert folder.log == [f"text: nothing changed, using what is prepared in {folder.path}/data"]
    assert arrays.stat().st_mtime_ns == made
    assert texts(again) == texts(first)
    assert again.counts == first.counts
    assert again.valid == first.valid
    assert again.train.fingerprint == first.train.fingerprint

    prints = {first.train.fingerprint}
    changes = [
        (config.model_copy(update={"max_tokens": 99}), VOCABULARY),
        (config.model_copy(update={"max_ratio": 5.0}), VOCABULARY),
        (config.model_copy(update={"valid_pairs": 3}), VOCABULARY),
        (config, VocabularyConfig(size=321)),
        (config, VocabularyConfig(size=320, joint=False)),
        (config, VocabularyConfig(size=320, kind="unigram")),
        (folder.config([*PAIRS[:-1], ("The bell", "Die Glocke")]), VOCABULARY),
    ]
    for changed, vocabulary in changes:
        prints.add(folder.prepare(changed, vocabulary).train.fingerprint)
        assert len(folder.log) > 1
    assert len(prints) == 1 + len(changes)


def test_a_file_that_was_renamed_is_not_tokenised_again_but_bears_its_new_name(
    folder: Folder,
) -> None:
    folder.prepare(DataConfig(tsv=(folder.write("old.tsv", "a\tb\n"),)))
    renamed = folder.write("new.tsv", "a\tb\n")
    data = folder.prepare(DataConfig(tsv=(renamed,)))
    assert len(folder.log) == 1
    assert data.train.line(0) == (renamed, 1)


@pytest.mark.parametrize("name", ["source.tokens.bin", "lines.bin", "corpus.json", "valid.json"])
def test_a_cut_or_missing_file_is_made_anew(folder: Folder, name: str) -> None:
    config = folder.config()
    first = texts(folder.prepare(config))
    path = folder.path / "data" / name
    path.write_bytes(path.read_bytes()[:10])
    assert texts(folder.prepare(config)) == first
    path.unlink()
    assert texts(folder.prepare(config)) == first
    assert len(folder.log) > 1


def test_an_interrupted_preparation_leaves_nothing_that_is_believed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = folder.config()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpus_module, "_write_rest", interrupt)
        with pytest.raises(KeyboardInterrupt):
            folder.prepare(config)
    assert len(folder.prepare(config).train) > 50
    assert not (folder.path / "data" / "partial").exists()


def test_given_tokenizers_are_used_as_they_are(folder: Folder) -> None:
    source = Tokenizer.train(iter(["other words altogether"]), VocabularyConfig(size=270))
    target = Tokenizer.train(iter(["ganz andere Worte"]), VocabularyConfig(size=275))
    data = folder.prepare(folder.config(), tokenizers=Tokenizers(source, target))
    assert data.tokenizers.source.to_bytes() == source.to_bytes()
    assert data.tokenizers.target.to_bytes() == target.to_bytes()
    assert data.train.source.ids(0).tolist() == source.encode(texts(data)[0][0])
    assert not any("vocabulary" in line for line in folder.log)
    folder.prepare(folder.config(), tokenizers=Tokenizers(source, target))
    assert len(folder.log) == 1
    folder.prepare(folder.config(), tokenizers=Tokenizers(source, source))
    assert len(folder.log) > 1


def test_tokenizers_given_back_to_their_own_corpus_change_nothing(folder: Folder) -> None:
    """A resumed run brings the tokenizers of its folder along."""
    config = folder.config()
    first = folder.prepare(config)
    again = folder.prepare(config, tokenizers=first.tokenizers)
    assert len(folder.log) == 1
    assert again.train.fingerprint == first.train.fingerprint
    (folder.path / "data" / "lines.bin").unlink()
    made_anew = folder.prepare(config, tokenizers=first.tokenizers)
    assert len(folder.log) > 1
    assert made_anew.train.fingerprint == first.train.fingerprint


def test_ids_over_65535_fit(folder: Folder) -> None:
    assert corpus_module.token_type(1 << 16) == "uint16"
    assert corpus_module.token_type((1 << 16) + 1) == "uint32"


@pytest.mark.parametrize(("source", "target"), [(3, 4), (4, 3), (1, 3000)])
def test_unequal_files_are_refused_with_both_counts(
    folder: Folder, source: int, target: int
) -> None:
    paths = folder.write("a.en", "x\n" * source), folder.write("a.de", "y\n" * target)
    config = DataConfig(source=paths[:1], target=paths[1:])
    noun = "line" if source == 1 else "lines"
    assert folder.refused(config) == (
        f"{paths[0]}, {paths[1]}: the source has {source:,} {noun} and the target has {target:,}\n"
        "  line N of the target must be the translation of line N of the source"
    )


def test_unequal_validation_files_are_refused_before_anything_is_made(folder: Folder) -> None:
    valid = folder.write("v.en", "x\n"), folder.write("v.de", "y\nz\n")
    config = folder.config(valid_source=valid[0], valid_target=valid[1])
    assert "the source has 1 line and the target has 2" in folder.refused(config)


def test_invalid_utf8_in_the_last_line_is_refused_before_anything_is_made(folder: Folder) -> None:
    source, target = folder.sides(PAIRS)
    Path(target).write_bytes(Path(target).read_bytes()[:-5] + b"\xe4\n")
    config = DataConfig(source=(source,), target=(target,))
    assert folder.refused(config).startswith(
        f"{target}, line 60: byte 24 of the line is 0xe4, which is not valid UTF-8 here"
    )


def test_an_empty_training_file_is_refused(folder: Folder) -> None:
    full, empty = folder.write("full", "a\nb\n"), folder.write("empty", "")
    message = f"{empty}: the file is empty\n  it must hold at least one line"
    assert folder.refused(DataConfig(source=(empty,), target=(empty,))) == message
    assert folder.refused(DataConfig(source=(full,), target=(empty,))) == message
    assert folder.refused(DataConfig(tsv=(empty,))) == message


def test_an_empty_validation_file_is_refused(folder: Folder) -> None:
    empty = folder.write("dev.en", "")
    config = folder.config(valid_source=empty, valid_target=empty)
    assert folder.refused(config) == (
        f"{empty}: the file is empty\n  it must hold at least one line"
    )


def test_validation_text_without_a_word_is_refused(folder: Folder) -> None:
    blank = folder.write("dev.en", "\n \n")
    config = folder.config(valid_source=blank, valid_target=blank)
    assert folder.refused(config) == (
        f"{blank}, {blank}: every pair of the validation text has an empty side"
    )


def test_missing_files_are_refused(folder: Folder) -> None:
    missing = str(folder.path / "none.txt")
    message = f"{missing}: no such file\n  check the path"
    assert folder.refused(DataConfig(tsv=(missing,))) == message
    assert folder.refused(folder.config(valid_tsv=missing)) == message
    assert folder.refused(DataConfig()) == (
        "data: no training text is given\n  give data.source and data.target, or data.tsv"
    )


@pytest.mark.parametrize("option", ["tsv", "source", "target", "valid_tsv"])
def test_a_pipe_is_refused_at_once(folder: Folder, option: str) -> None:
    pipe = str(folder.path / "pipe")
    os.mkfifo(pipe)
    good = folder.write("good", "a\n")
    config = {
        "tsv": DataConfig(tsv=(pipe,)),
        "source": DataConfig(source=(pipe,), target=(good,)),
        "target": DataConfig(source=(good,), target=(pipe,)),
        "valid_tsv": folder.config(valid_tsv=pipe),
    }[option]
    assert folder.refused(config) == (
        f"{pipe}: it must be a regular file, because it is read more than once\n"
        "  write the text to a file first"
    )


def test_text_with_an_empty_side_everywhere_is_refused(folder: Folder) -> None:
    path = folder.write("a.tsv", "a\t\n\tb\n")
    assert folder.refused(DataConfig(tsv=(path,))) == (
        f"{path}: wanted pairs of text, but of 2 pairs each has an empty side"
    )


def test_text_of_which_no_pair_is_left_is_refused_with_the_reasons(folder: Folder) -> None:
    path = folder.write("a.tsv", "aaa bbb ccc\tddd eee fff\n" * 3 + "\tx\n")
    with pytest.raises(DataError) as caught:
        folder.prepare(DataConfig(tsv=(path,), max_tokens=1))
    assert str(caught.value) == (
        f"{path}: no pair is left to train on, of 4: 1 with an empty side, "
        "3 with more than 1 token\n  raise data.max_tokens or data.max_ratio, or look at the files"
    )


def test_text_of_which_all_that_fits_is_held_out_is_refused_with_the_reasons(
    folder: Folder,
) -> None:
    first, *_, last = sorted(PAIRS, key=lambda pair: hash_of(pair[0], salt=VALIDATION_SALT))
    lopsided = (f"{last[0]} 1" * 40, "x")
    while hash_of(lopsided[0], salt=VALIDATION_SALT) < hash_of(first[0], salt=VALIDATION_SALT):
        lopsided = (f"{lopsided[0]} more", "x")
    with pytest.raises(DataError) as caught:
        folder.prepare(folder.config([first] * 12 + [lopsided], max_tokens=10_000))
    assert str(caught.value).endswith(
        ": no pair is left to train on, of 13: 1 with a length ratio over 8, "
        "12 held out for validation\n"
        "  raise data.max_tokens or data.max_ratio, or look at the files"
    )


def test_the_index_is_readable_json(folder: Folder) -> None:
    folder.prepare(folder.config())
    index = json.loads((folder.path / "data" / "corpus.json").read_text())
    assert index["counts"]["read"] == 60
