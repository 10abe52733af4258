"""What a user may get wrong, word by word: the text that says so, and the exit code 2."""

import io
import sys
from pathlib import Path

import pytest
from serving.tiny_runs import make_run, tokenizer

import regard
from regard.cli import main
from regard.weights.run_folder import RunFolder

TRAIN = "train tiny --out run --source a.en --target"
REFUSALS = {
    f"{TRAIN} short.de": (
        "error: a.en, short.de: the source has 3 lines and the target has 2\n"
        "  line N of the target must be the translation of line N of the source\n"
    ),
    f"{TRAIN} bad.de": (
        "error: bad.de, line 2: byte 3 of the line is 0xff, which is not valid UTF-8 here\n"
        "  convert the file, for example: iconv -f latin1 -t utf-8 OLD > NEW\n"
    ),
    f"{TRAIN} no.de": "error: no.de: no such file\n  check the path\n",
    f"{TRAIN} empty": (
        "error: empty: the file is empty\n  it must hold at least one line\n"
    ),
    f"{TRAIN} a.de --valid-source empty --valid-target empty": (
        "error: empty: the file is empty\n  it must hold at least one line\n"
    ),
    f"{TRAIN} a.de --valid-source a.en --valid-target short.de": (
        "error: a.en, short.de: the source has 3 lines and the target has 2\n"
        "  line N of the target must be the translation of line N of the source\n"
    ),
    f"{TRAIN} a.de --set model.dropuot=0.1": (
        "error: --set model.dropuot: unknown key; did you mean model.dropout?\n"
    ),
    f"{TRAIN} a.de --set model.d_model=wide": (
        'error: --set model.d_model: expected a whole number that is at least 1 '
        'and at most 1000000000000, got "wide"\n'
    ),
    f"{TRAIN} a.de --set model.num_heads=7": (
        "error: --set model.num_heads: d_model = 64 is not divisible by num_heads = 7; "
        "set d_k and d_v, or choose a num_heads that divides d_model\n"
    ),
    "train bad.toml": "error: bad.toml: model.d_modle: unknown key; did you mean model.d_model?\n",
    "translate no": "error: no: there is no such run folder\n",
    "translate a.en": "error: a.en: this is a file, not a run folder\n",
    "translate .": (
        "error: .: this is not a run folder: it has no manifest.json\n"
        "  A run folder is what regard train wrote with --out.\n"
    ),
    "translate model-damaged": (
        "error: model-damaged/model.safetensors: the file is damaged: its bytes are not those "
        "that were written (SHA-256)\n  Copy it again from where the folder came from.\n"
    ),
    "translate model-missing": (
        "error: model-missing/model.safetensors: the file is missing\n"
        "  Copy it again from where the folder came from.\n"
    ),
    "translate tokenizer-missing": (
        "error: tokenizer-missing/tokenizer.json: the file is missing\n"
        "  Copy it again from where the folder came from.\n"
    ),
    "evaluate recipe-damaged --source a.en --reference a.de": (
        "error: recipe-damaged/recipe.toml: the file is damaged: "
        "it has 4 bytes and should have SIZE\n"
        "  Copy it again from where the folder came from. "
        "Settings are changed with --set, not in this file.\n"
    ),
    "score vocabulary --source a.en --target a.de": (
        "error: vocabulary: the vocabulary does not fit the weights: tokenizer.json has 270 "
        "entries, and source_embedding.weight has 280 rows\n"
        "  Copy the folder again from where it came from, whole.\n"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good and bad texts, a bad recipe and broken runs."""
    folder = tmp_path_factory.mktemp("refusals")
    for name, content in {
        "a.en": b"a b\nc d\ne f\n",
        "a.de": b"x y\nz w\nu v\n",
        "short.de": b"x y\nz w\n",
        "bad.de": b"x y\nz \xffw\nu v\n",
        "empty": b"",
        "bad.toml": b"[model]\nd_modle = 64\n",
    }.items():
        (folder / name).write_bytes(content)
    for name in ("model-damaged", "model-missing", "tokenizer-missing", "recipe-damaged"):
        make_run(folder / name)
    model = folder / "model-damaged" / "model.safetensors"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    (folder / "model-missing" / "model.safetensors").unlink()
    (folder / "tokenizer-missing" / "tokenizer.json").unlink()
    (folder / "recipe-damaged" / "recipe.toml").write_bytes(b"four")
    with RunFolder.open(make_run(folder / "vocabulary"), write=True) as run:
        run.write_tokenizers(tokenizer(270).to_bytes())
    return folder


@pytest.mark.parametrize(("line", "text"), REFUSALS.items(), ids=REFUSALS)
def test_a_mistake_is_told_plainly_and_exits_with_2(
    line: str,
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    code = main(line.split())
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    # What was read until then may have been told before it.
    told, error, said = captured.err.partition("error: ")
    size = f"{len((folder / 'vocabulary' / 'recipe.toml').read_bytes()):,}"
    assert error + said == text.replace("SIZE", size)
    assert all(each.startswith("text: ") for each in told.splitlines())


def test_one_pair_is_enough_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pair.tsv").write_text("hello there\thallo du\n", encoding="utf-8")
    line = (
        "train tiny --tsv pair.tsv --valid-tsv pair.tsv --set training.batch_tokens=64 "
        "--set training.max_steps=2 --set vocabulary.size=265 --set training.precision=float32 "
        "--set decoding.max_extra_tokens=2"
    )
    assert main(line.split()) == 0, capsys.readouterr().err
    assert isinstance(regard.load("runs/tiny").translate("hello there"), str)
