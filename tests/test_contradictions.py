"""What says two things, or nothing, on a command line is refused in the words that were typed."""

from pathlib import Path

import pytest

from regard.cli import main

RESUME = (
    ", and --resume wants a run folder\n"
    "  Give the folder that regard train wrote with --out: regard train RUN --resume\n"
)
TUNE = ["finetune", "bert-mini", "--labels=a.tsv"]
EPOCHS = "--epochs: expected a number that is more than 0 and at most 1,000,000, got "


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            ["train", "gpt-char", "--text=prose.txt", "--resume"],
            f"gpt-char: this is a recipe{RESUME}",
        ),
        (
            ["train", "prose.txt", "--resume"],
            f"prose.txt: this is a file{RESUME}",
        ),
        (["train", "no", "--resume"], "no: there is no such run folder\n"),
        ([*TUNE, "--epochs=nan"], f"{EPOCHS}nan\n"),
        ([*TUNE, "--epochs=0", "--set=training.max_steps=4"], f"{EPOCHS}0\n"),
        ([*TUNE, "--epochs=-1", "--set=training.max_steps=4"], f"{EPOCHS}-1\n"),
        ([*TUNE, "--epochs=1e7"], f"{EPOCHS}1e+07\n"),
        (
            [*TUNE, "--epochs=2", "--set=training.max_steps=4"],
            "--set training.max_steps: says in steps what --epochs says in epochs\n"
            "  Give the one or the other.\n",
        ),
        (
            ["train", "tiny", "--set=training.seed=3", "--set", "training.seed=4"],
            "--set training.seed: training.seed is given two values, 3 and 4\n"
            "  Give the one or the other.\n",
        ),
        (
            ["train", "gpt-char", "--text=a", "--set", 'data.text=["b"]'],
            '--text, --set data.text: data.text is given two values, ["a"] and ["b"]\n'
            "  Give the one or the other.\n",
        ),
        (
            ["import", "prose.txt", "--out=r"],
            "prose.txt: this is a file, and the folder that holds a checkpoint is wanted\n",
        ),
        (["generate", ""], 'RUN: expected a path, got ""\n'),
        (["translate", "x", "--ensemble", "y", ""], '--ensemble: expected a path, got ""\n'),
        (["train", "tiny", "--init", ""], '--init: expected a path, got ""\n'),
        (["train", "tiny", "--tsv", "a", "--out="], '--out: expected a path, got ""\n'),
        (["embed", "run", "--out=a.npy", "--input="], '--input: expected a path, got ""\n'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_it_is_refused_with_what_was_typed(
    line: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prose.txt").write_text("a\n")
    assert main(line) == 2
    assert capsys.readouterr() == ("", f"error: {text}")


def test_the_same_value_twice_is_no_contradiction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "show", "tiny", "--set=training.seed=3", "--set=training.seed=3"]) == 0
    assert "seed = 3" in capsys.readouterr().out
