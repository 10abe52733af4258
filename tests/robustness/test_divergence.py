"""A training that diverges names the lines of the text that it was at, as files and numbers."""

import math
import re
from pathlib import Path

import pytest
import torch

from regard.cli import main
from regard.recipes import pairs
from regard.text.tokenizer import Tokenizer
from regard.training.losses import LossSums, translation_loss
from regard.training.parts import PairPart
from regard.weights.checkpoints import checkpoint_steps

KEYS = (
    "training.max_steps=60", "training.checkpoint_every=1", "training.batch_tokens=40",
    "training.max_skipped=1", "training.device=cpu", "training.precision=float32",
    "training.validate_every=1000", "vocabulary.size=290", "model.d_model=16",
    "model.num_heads=2", "model.d_ff=32", "model.encoder_layers=1", "model.decoder_layers=1",
    "decoding.beam=1", "decoding.max_extra_tokens=1",
)  # fmt: skip
# The 30th line of the second file.
POISON = "zzz zzz zzz"


def test_the_line_that_makes_the_loss_nan_is_printed_with_its_file_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    for name, count in (("first.tsv", 25), ("second.tsv", 45)):
        lines = [f"{words[at % 7]} {words[at % 5]}\t{words[at % 3]}" for at in range(count)]
        if name == "second.tsv":
            lines[29] = f"{POISON}\t{words[0]}"
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    run = tmp_path / "run"

    def loss(model: torch.nn.Module, part: PairPart, smoothing: float) -> LossSums:
        sums = translation_loss(model, part, smoothing)
        tokenizer = Tokenizer.from_bytes((run / "tokenizer.json").read_bytes())
        texts = [tokenizer.decode(row) for row in part.source_bs.tolist()]
        bad = math.nan if any(POISON in text for text in texts) else 1.0
        return LossSums(sums.smoothed * bad, sums.nll)

    monkeypatch.setattr(pairs, "translation_loss", loss)
    text = ["--tsv", str(tmp_path / "first.tsv"), str(tmp_path / "second.tsv")]
    keys = [word for key in KEYS for word in ("--set", key)]
    assert main(["train", "tiny", *text, "--out", str(run), *keys]) == 2
    said = capsys.readouterr().err
    error = said[said.rindex("error: ") :]
    step = int(error.partition("the loss is nan at step ")[2].split("\n")[0])
    named = re.search(rf"of {re.escape(str(tmp_path / 'second.tsv'))}: ([\d, ]+)", error)
    assert named is not None
    assert "30" in named[1].split(", ")
    assert len(named[1].split(", ")) <= 10, "so many lines are no help"
    *_, before = [number for number in checkpoint_steps(run) if number < step]
    assert checkpoint_steps(run)[-1] == before == step - 1
    assert f"The last good checkpoint is {run / f'checkpoints/step-{before:08d}'}." in error
    assert "Traceback" not in said
