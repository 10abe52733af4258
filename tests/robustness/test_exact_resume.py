"""N steps, a stop, M steps: the batches, the rates and the weights of N+M steps, to the bit."""

import hashlib
import itertools
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

import regard
from regard.errors import Interrupted
from regard.recipes import pairs
from regard.recipes.run import resume, train
from regard.training.feed import StepBatch
from regard.training.losses import translation_loss
from regard.training.progress import SilentReporter
from regard.training.step import Stepper
from regard.training.validation import TranslationValidator

STEPS = 18
SETTINGS = [
    f"training.max_steps={STEPS}", "training.checkpoint_every=7", "training.validate_every=9",
    "training.batch_tokens=150", "training.log_every=4", "training.device=cpu",
    "training.sample_lines=1", "vocabulary.size=290", "model.d_model=16", "model.num_heads=2",
    "model.d_ff=32", "model.encoder_layers=1", "model.decoder_layers=1", "model.dropout=0.1",
    "training.accumulate=2", "decoding.beam=1", "decoding.max_extra_tokens=1",
]  # fmt: skip
PRECISIONS = ["float32", "bfloat16"]
EXTRAS = {
    "plain": [],
    "average": ["training.ema_decay=0.9"],
    "BPE-dropout": ["vocabulary.bpe_dropout=0.2"],
    "average and BPE-dropout": [
        "training.ema_decay=0.9", "vocabulary.bpe_dropout=0.2", "training.clip_norm=0.5",
        'training.optimizer.kind="adamw"',
    ],
}  # fmt: skip
STOPS = ["at an epoch's edge", "amid an epoch", "amid an accumulation", "amid a validation"]


@dataclass(frozen=True)
class Step:
    """A step as it was taken: its number, its rate, and the rows and tokens that it saw."""

    number: int
    rate: float
    epoch: int
    next_batch: int
    tokens: str


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """All steps that are taken."""
    steps: list[Step] = []
    take = Stepper.take

    def taking(self: Stepper, batch: StepBatch, step: int, rate: float, tally: object) -> None:
        digest = hashlib.sha256(batch.rows_b.numpy().tobytes())
        for part in batch.parts:
            digest.update(part.source_bs.numpy().tobytes() + part.targets_n.numpy().tobytes())
        seen = Step(step, rate, batch.epoch, batch.next_batch, digest.hexdigest())
        take(self, batch, step, rate, tally)
        steps.append(seen)

    monkeypatch.setattr(Stepper, "take", taking)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    return steps


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "pairs.tsv"
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    lines = [" ".join([*words[at % 7 : at % 7 + 1 + at % 4], words[at % 10]]) for at in range(70)]
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return path


def stopping(monkeypatch: pytest.MonkeyPatch, stop: str, whole: list[Step]) -> None:
    """Let a signal come at that place of the training."""
    edges = [one.number for one, after in itertools.pairwise(whole)
             if after.epoch > one.epoch]  # fmt: skip
    if stop == "amid a validation":
        run, calls = TranslationValidator.run, []

        def validating(self: TranslationValidator, model: object) -> object:
            calls.append(1)
            if len(calls) == 1:
                signal.raise_signal(signal.SIGTERM)
            return run(self, model)

        monkeypatch.setattr(TranslationValidator, "run", validating)
        return
    at = edges[0] if stop == "at an epoch's edge" else edges[0] + 2
    # The second part of two is where the gradients of the first are there already.
    call = 2 * at if stop == "amid an accumulation" else 2 * at - 1
    parts: list[int] = []

    def loss(*arguments: object) -> object:
        parts.append(1)
        if len(parts) == call:
            signal.raise_signal(signal.SIGTERM)
        return translation_loss(*arguments)

    monkeypatch.setattr(pairs, "translation_loss", loss)


def made(run: Path) -> dict[str, bytes]:
    """The model and all tensors of the last checkpoint."""
    last = run / f"checkpoints/step-{STEPS:08d}"
    files = [run / "model.safetensors", *sorted(last.glob("*.safetensors"))]
    return {path.name if path.parent == run else f"last/{path.name}": path.read_bytes()
            for path in files}  # fmt: skip


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_training_stopped_anywhere_and_resumed_is_the_one_that_was_not_stopped(
    precision: str,
    extra: str,
    text: Path,
    trace: list[Step],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [f"training.precision={precision}", *EXTRAS[extra]]
    recipe = regard.load_recipe("tiny", [f'data.tsv=["{text}"]', *SETTINGS, *keys])
    train(recipe, tmp_path / "whole", reporter=SilentReporter())
    whole = trace.copy()
    wanted = {"model.safetensors", "last/model.safetensors", "last/optimizer.safetensors",
              "last/random.safetensors"}  # fmt: skip
    wanted |= {"last/ema.safetensors"} if "average" in extra else set()
    assert made(tmp_path / "whole").keys() == wanted
    for stop in STOPS:
        trace.clear()
        with monkeypatch.context() as patch:
            stopping(patch, stop, whole)
            with pytest.raises(Interrupted):
                train(recipe, tmp_path / stop, reporter=SilentReporter())
        assert 0 < len(trace) < STEPS
        resume(tmp_path / stop, reporter=SilentReporter())
        assert trace == whole, stop
        assert made(tmp_path / stop) == made(tmp_path / "whole"), stop
