"""Models with experts as recipes name them: trained, measured, served, refused where they end."""

import json
from pathlib import Path

import pytest

import regard
from regard.engine import native
from regard.engine.native import EngineError
from regard.errors import ModelError, RecipeError
from regard.evaluation.records import read_metrics
from regard.recipes.bring import export_run
from regard.recipes.describe import describe, format_description, to_json
from regard.recipes.load import load_recipe, load_recipe_of
from regard.recipes.recipe import FAMILIES
from regard.recipes.run import train
from regard.training.progress import SilentReporter
from regard.weights.run_folder import RunFolder

REFUSED = {
    "base model.experts.number=2 model.experts.top=3": (
        "--set model.experts.number, model.experts.top: top = 3 is more than number = 2"
    ),
    "base model.experts.top=1": (
        "--set model.experts.top: top = 1 is about experts, and number = 0 is none; set number too"
    ),
    "base model.experts.balance=0.1": (
        "--set model.experts.balance: balance = 0.1 is about experts, and number = 0 is none; set "
        "number too"
    ),
    "base model.experts.number=5000": (
        "--set model.experts.number: expected a whole number that is at least 0 and at most 4096, "
        "got 5000"
    ),
    "gpt-mini model.experts.number=4 lora.rank=4 lora.targets=both": (
        '--set model.experts.number, lora.targets: lora.targets = "both" adapts '
        "matrices of the feed-forward, and there are model.experts.number = 4 of them in a layer; "
        'set lora.targets to "attention"'
    ),
}
TEXT = "the light\nthe door is new\n"
SMALL = ["vocabulary.size=270", "model.d_model=16", "model.num_heads=2", "model.d_ff=16",
         "training.max_steps=3", "training.batch_tokens=60", "training.device=cpu",
         "training.log_every=1", "model.experts.number=4"]  # fmt: skip


@pytest.mark.parametrize("changes", REFUSED)
def test_what_cannot_work_is_refused_when_the_recipe_is_read(changes: str) -> None:
    name, *overrides = changes.split()
    with pytest.raises(RecipeError) as caught:
        load_recipe(name, overrides)
    assert str(caught.value) == REFUSED[changes]


def test_info_tells_all_parameters_and_those_that_a_token_uses() -> None:
    description = describe("tiny", ["model.experts.number=4"])
    text = format_description(description)
    assert "(relu, 4 experts, 2 a token)" in text
    assert f", of which a token uses {description.active_parameters:,}" in text
    assert "encoder experts" in text
    assert json.loads(to_json(description))["active_parameters"] < description.parameters
    plain = describe("tiny")
    assert plain.active_parameters == plain.parameters
    assert "of which" not in format_description(plain)


@pytest.mark.parametrize(
    ("preset", "option"),
    [("tiny", "data.tsv"), ("gpt-mini", "data.text"), ("bert-mini", "data.text"),
     ("bert-mini", "labels.train")],
)  # fmt: skip
def test_each_family_trains_with_experts_and_logs_their_load(
    preset: str, option: str, tmp_path: Path
) -> None:
    lines = {"data.tsv": "the light\tdas Licht\nthe door\tdie Tür\n",
             "labels.train": "a\tthe light\nb\tthe door\n"}.get(option, TEXT)  # fmt: skip
    text = tmp_path / "text"
    text.write_text(lines, encoding="utf-8")
    family = type(load_recipe(preset))
    extra = [] if preset == "tiny" else ["model.num_layers=2"]
    recipe = load_recipe_of(family, preset, [*SMALL, *extra, f'{option}=["{text}"]'])
    assert family in FAMILIES.values()
    run = tmp_path / "run"
    train(recipe, run, reporter=SilentReporter())
    records = read_metrics(run / "metrics.jsonl", print)
    steps = [record for record in records if record["event"] == "train"]
    assert len(steps) == 3
    for record in steps:
        assert 1 / 4 <= record["busiest_expert"] <= 1
        assert 0.5 < record["balance"] < 4
    weights = RunFolder.open(run).load_weights()
    assert any(name.endswith("feed_forward.router.weight") for name in weights)
    for name in ("huggingface", "ctranslate2"):
        if name == "ctranslate2" and preset == "bert-mini":
            continue
        with pytest.raises(ModelError) as caught:
            export_run(run, tmp_path / "out", name)
        assert "model.experts.number = 4" in str(caught.value)
    if preset == "tiny":
        translator = regard.load(run, device="cpu")
        assert translator.engine == "torch"
        assert len(translator.translate(["the light", ""])) == 2
        if not native.absence():
            with pytest.raises(EngineError) as refused:
                regard.load(run, engine="native")
            assert "the engine does not support model.experts.number = 4" in str(refused.value)


def test_a_run_without_experts_logs_none(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text(TEXT, encoding="utf-8")
    changes = [*SMALL, "model.num_layers=1", "model.experts.number=0", f'data.text=["{text}"]']
    train(load_recipe("gpt-mini", changes), tmp_path / "run", reporter=SilentReporter())
    for record in read_metrics(tmp_path / "run" / "metrics.jsonl", print):
        assert "balance" not in record
        assert "busiest_expert" not in record
