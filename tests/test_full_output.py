"""No command loses a result on a full device: it names the file, in the words of the house."""

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from comparisons import example
from serving.tiny_families import make_encoder_run, make_language_run
from serving.tiny_runs import make_run
from test_numbers_typed import commands

from regard.cli import app, main
from regard.engine import native
from regard.serving.shortlist import make_shortlist

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no full device")
PROBLEM = "cannot be written: No space left on device"

# What each command prints, by what there is in the folder of `here`.
PRINTS = {
    "demo": ["--out d"],
    "translate": ["ende --input a.en", "ende --input a.en --sample --n-best 2"],
    "evaluate": [f"ende --source a.en --reference a.de {json}" for json in ("", "--json")],
    "score": [f"ende --source a.en --target a.de {json}" for json in ("", "--json")],
    "generate": [f"gpt --prompt the {more}" for more in ("", "--samples 2", "--json")],
    "classify": [f"bert {more}" for more in ("--input a.en", "--input a.en --json", "--labels t")],
    "fill": ["bert [MASK]", "bert [MASK] --json"],
    "average": ["ende --last 1", "ende --last 1 --out averaged"],
    "merge": ["ende --out merged"],
    "import": ["exported --out imported"],
    "export": ["gpt --out again"],
    "quantize": ["ende --out packed"],
    "shortlist": ["ende --source a.en --target a.de", "short --drop"],
    "compare": ["--out c"],
    "info": ["tiny", "ende", "tiny --json"],
    "doctor": ["--quick", "--quick --json", "ende", "ende --json"],
    "recipe list": [""],
    "recipe show": ["tiny"],
}
# What these made is there nevertheless, which is said.
MAKING = {"demo", "merge", "import", "export", "quantize", "shortlist", "compare"}
# These print nothing: their result is a folder or a file.
SILENT = {"train", "finetune", "embed"}
WRITES = {
    "translate": [f"ende --input a.en --{option}" for option in ("output", "report", "alignments")],
    "classify": ["bert --input a.en --output"],
    "embed": ["bert --input a.en --out"],
}
MAKES = {
    "demo": "",
    "train": "tiny --tsv t",
    "finetune": "./bert --labels t",
    "average": "ende --last 1",
    "merge": "ende",
    "import": "exported",
    "export": "gpt",
    "quantize": "ende",
    "compare": "",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs and texts that the commands are given."""
    folder = tmp_path_factory.mktemp("here")
    make_run(folder / "ende")
    make_run(folder / "short")
    make_language_run(folder / "gpt")
    make_encoder_run(folder / "bert")
    (folder / "a.en").write_text("the light\nthe kitchen is on\n")
    (folder / "a.de").write_text("das Licht\nKüche ist an\n")
    (folder / "t").write_text("colour\tred\nnumber\tone\n")
    text = {"source": [folder / "a.en"], "target": [folder / "a.de"]}
    make_shortlist(folder / "short", **text)
    assert main(["export", str(folder / "gpt"), "--out", str(folder / "exported")]) == 0
    return folder


@pytest.fixture(autouse=True)
def work_is_done(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long, or needs what there is not, is taken as done."""
    monkeypatch.chdir(here)
    monkeypatch.setattr("regard.compare.drawing.require_plots", lambda: None)


def done(*_arguments: Any, **_options: Any) -> Any:
    return "text"


def call(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command whose standard output is full."""
    full = FULL.open("w", encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        code = main(words)
    with suppress(OSError):
        full.close()
    return code


def test_all_commands_are_looked_at() -> None:
    known = {" ".join(words): command for words, command in commands(app)}
    assert known.keys() == PRINTS.keys() | SILENT
    files = {"--out", "--output", "--report", "--alignments"}
    taking = {
        name
        for name, command in known.items()
        if any(files & set(one.names) for one in command.assemble_argument_collection())
    }
    assert taking == WRITES.keys() | MAKES.keys()


@pytest.mark.parametrize(
    "line", [f"{name} {rest}".strip() for name, all_ in PRINTS.items() for rest in all_]
)
def test_a_full_standard_output_is_named(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *_ = line.split()
    if name == "quantize" and not native.available():
        pytest.skip("the engine is not built")
    monkeypatch.setattr("regard.demo.run_demo", done)
    monkeypatch.setattr("regard.recipes.merge.merge_run", done)
    monkeypatch.setattr("regard.weights.average.average_checkpoints", lambda *_, **__: [1])
    monkeypatch.setattr("regard.compare.run.compare", lambda *_, **__: example())
    assert call(line.split(), monkeypatch) == 2
    said = capsys.readouterr().err
    made = r"\n  What was made is there: \S+" if name in MAKING and "--drop" not in line else ""
    assert re.search(rf"(^|\n)error: standard output: {PROBLEM}{made}\n$", said), said
    assert "Traceback" not in said


@pytest.mark.parametrize("line", [f"{name} {one}" for name, all_ in WRITES.items() for one in all_])
def test_a_full_file_is_named(
    line: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for ending in ("npy", "jsonl", "txt", "tsv"):
        path = here / f"full.{ending}"
        if not path.is_symlink():
            path.symlink_to(FULL)
        assert main([*line.split(), str(path)]) == 2
        assert capsys.readouterr().err.endswith(f"error: {path}: {PROBLEM}\n")


@pytest.mark.parametrize("line", [f"{name} {rest}".strip() for name, rest in MAKES.items()])
@pytest.mark.parametrize("out", ["/dev/full", "/dev/full/run"])
def test_what_can_be_no_folder_is_named(
    line: str, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("regard.recipes.merge.is_adapter", lambda _: True)
    monkeypatch.setattr("regard.weights.average._chosen", lambda *_: [])
    monkeypatch.setattr("regard.weights.average.average_weights", lambda *_: {})
    assert main([*line.split(), "--out", out]) == 2
    captured = capsys.readouterr()
    assert re.search(rf"(^|\n)error: {out}: [^\n]+(\n  [^\n]+)*\n$", captured.err), captured.err
    assert "Traceback" not in captured.err
