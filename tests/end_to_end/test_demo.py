"""`regard demo` on a model that learns nothing in its few steps: all but the quality."""

import json
import subprocess
from pathlib import Path

import pytest
from end_to_end.conftest import environment

from regard.demo import SIDES, SPLITS, run_demo
from regard.recipes.load import load_recipe
from regard.text.split import twin_key
from regard.training.progress import PlainReporter
from regard.weights.run_folder import RunFolder


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The run folder, what was said, and the result."""
    folder = tmp_path_factory.mktemp("demo")
    log = (folder / "log").open("w+", encoding="utf-8")
    text = run_demo(
        folder / "run",
        minutes=0.001,
        overrides=[
            "vocabulary.size=300", "model.d_model=16", "model.num_heads=2", "model.d_ff=16",
            "model.encoder_layers=1", "model.decoder_layers=1", "training.batch_tokens=500",
            "decoding.max_extra_tokens=0", "decoding.max_tokens=3", "decoding.beam=1",
            "training.precision=float32",
        ],
        reporter=PlainReporter(log),
    )  # fmt: skip
    log.seek(0)
    return folder / "run", log.read(), text


def test_near_twins_stay_on_one_side_and_no_pair_is_lost(demo: tuple[Path, str, str]) -> None:
    run, _, _ = demo
    keys: dict[str, set[str]] = {}
    lines = 0
    for split in SPLITS:
        sides = [
            (run / f"text/{split}.{side}").read_text(encoding="utf-8").split("\n")[:-1]
            for side in SIDES
        ]
        assert len(sides[0]) == len(sides[1])
        lines += len(sides[0])
        keys[split] = {twin_key(source) for source in sides[0]}
    assert lines == 34_999
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["valid"]
    assert not keys["valid"] & keys["test"]


def test_the_plan_is_said_and_kept_in_the_recipe(demo: tuple[Path, str, str]) -> None:
    run, said, _ = demo
    steps = load_recipe(run).training.max_steps
    assert steps >= 10
    assert f"plan: {steps:,} steps of " in said
    assert "33,631 pairs to train, 341 pairs to valid, 1,027 pairs to test" in said
    assert "BLEU" in said


def test_the_test_scores_are_in_the_metrics_and_in_the_report(
    demo: tuple[Path, str, str],
) -> None:
    run, _, text = demo
    records = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    (test,) = (record for record in records if record["event"] == "test")
    assert f"BLEU {test['bleu']:.1f}  {test['bleu_signature']}" in text
    assert f"chrF {test['chrf']:.1f}  {test['chrf_signature']}" in text
    assert test["chrf_signature"] in (run / "report.html").read_text(encoding="utf-8")
    assert RunFolder.open(run).has_model


def test_the_printed_commands_work_as_they_stand(demo: tuple[Path, str, str]) -> None:
    run, _, text = demo
    lines = text.split("\n")
    first, end = map(lines.index, ("Try it:", "With your own text, in files like these two:"))
    commands = [line.strip() for line in lines[first + 1 : end]]
    assert len(commands) == 5
    script = 'regard() { $REGARD "$@"; }; set -eo pipefail\n' + "\n".join(commands)
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    assert (run / "test.out.de").read_bytes().count(b"\n") == 1027
