"""A stored run folder still opens and still translates to the same strings."""

import io
import json
import sys
from pathlib import Path

import pytest

import regard
from regard.cli import main
from regard.engine import native
from regard.serving.translator import Translator
from regard.weights.run_folder import RunFolder

GOLDEN = Path(__file__).parent
RUN = GOLDEN / "run"

# The model was trained on the first of them only.
LINES = [
    "the window is open now.",
    "the lock is off again.",
    "the light is on again.",
    "the fan is not open always.",
    "",
    "the lamp is closed and open.",
]
GREEDY = [
    "das Fenster ist offen jetzt.",
    "das Schloss ist aus wieder.",
    "das Licht ist an immer.",
    "der Lüfter ist offen heute.",
    "",
    "die Lampe ist zu wieder.",
]
# Beam search finds a likelier translation of the fourth than greedy search.
BEAM = [
    "das Fenster ist offen jetzt.",
    "das Schloss ist aus wieder.",
    "das Licht ist an immer.",
    "der Lüfter ist offen wieder.",
    "",
    "die Lampe ist zu wieder.",
]


@pytest.fixture(scope="module", params=["torch", "native"])
def translator(request: pytest.FixtureRequest) -> Translator:
    if request.param == "native" and (reason := native.absence()):
        pytest.skip(f"there is no engine: {reason}")
    return regard.load(RUN, device="cpu", engine=request.param)


def test_the_folder_is_as_it_was_written() -> None:
    folder = RunFolder.open(RUN)  # verifies all of them
    assert folder.files == ["model.safetensors", "recipe.toml", "tokenizer.json"]
    assert folder.model_notes()["step"] == "600"


def test_it_translates_all_that_it_was_trained_on(translator: Translator) -> None:
    lines = (GOLDEN / "pairs.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = [line.split("\t") for line in lines]
    assert len(pairs) == 60
    assert translator.translate([source for source, _ in pairs]) == [target for _, target in pairs]


def test_greedy(translator: Translator) -> None:
    assert translator.translate(LINES, beam=1) == GREEDY


def test_beam(translator: Translator) -> None:
    assert translator.translate(LINES, beam=4) == BEAM


def test_n_best_with_scores(translator: Translator) -> None:
    found = translator.translations([LINES[2], LINES[3]], beam=4, n_best=2)
    assert [
        (each.text, pytest.approx(each.score, abs=2e-4), pytest.approx(each.log_prob, abs=2e-4))
        for line in found
        for each in line.hypotheses
    ] == [
        ("das Licht ist an immer.", -1.08988, -2.03590),
        ("das Licht ist an imer.", -1.65847, -2.98737),
        ("der Lüfter ist offen wieder.", -1.87671, -3.86478),
        ("der Lüfter ist offen nicht.", -2.37907, -4.59917),
    ]


def test_samples_of_a_seed(translator: Translator) -> None:
    found = translator.translate(LINES, method="sample", seed=3, temperature=0.8, top_k=8)
    assert found == [
        "das Fenster ist offen jetzt.",
        "das Schloss ist aus wieder.",
        "das Licht ist an immer.",
        "der Lüfter ist offen nicht.",
        "",
        "die Lampe ist zu wieder.",
    ]


def test_scores_of_pairs(translator: Translator) -> None:
    scores = translator.score(
        [
            ("the light is on now.", "das Licht ist an jetzt."),
            ("the light is on now.", "die Tür ist an jetzt."),
            ("the light is on now.", ""),
            ("", "b"),
        ]
    )
    assert [score.tokens for score in scores] == [14, 16, 1, 3]
    assert [score.log_prob for score in scores] == pytest.approx(
        [-1.55551, -23.59970, -10.42740, -18.79629], abs=2e-3
    )


def test_alignments(translator: Translator) -> None:
    found = translator.translations(LINES, beam=4, alignments=True)
    assert [translation.pharaoh for translation in found] == [
        "1-1 1-4 2-3 3-1 3-4 4-0 4-1 4-2 4-3 4-4",
        "2-3 3-4 4-0 4-1 4-2 4-3 4-4",
        "1-1 1-4 4-0 4-1 4-2 4-3 4-4",
        "1-1 1-2 2-3 2-4 3-4 5-0 5-1 5-4",
        "",
        "0-1 2-3 4-4 5-0 5-1 5-2 5-4",
    ]


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = "".join(f"{line}\n" for line in LINES)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    report = tmp_path / "report.jsonl"
    assert main(["translate", str(RUN), "--report", str(report)]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out.decode().split("\n") == [*BEAM, ""]
    assert captured.err == b""
    second = json.loads(report.read_text(encoding="utf-8").split("\n")[1])
    assert second.pop("score") == pytest.approx(-1.21379, abs=2e-4)
    assert second.pop("log_prob") == pytest.approx(-2.49960, abs=2e-4)
    assert second == {
        "line": 2,
        "source": "the lock is off again.",
        "text": "das Schloss ist aus wieder.",
        "tokens": [
            "▁das",
            "▁",
            "S",
            "ch",
            "los",
            "s",
            "▁ist",
            "▁a",
            "us",
            "▁w",
            "ie",
            "d",
            "er",
            ".",
        ],
        "finished": True,
    }
