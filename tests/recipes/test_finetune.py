"""Classifiers from runs and recipes: what they take from there, and what `--set` says."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import RecipeError
from regard.recipes.assembly import assemble
from regard.recipes.finetune import classifier_recipe, planned
from regard.recipes.load import load_recipe, load_recipe_of
from regard.recipes.recipe import EncoderRecipe
from regard.recipes.run import finetune, next_commands, train
from regard.training.progress import SilentReporter
from regard.weights.run_folder import RunFolder

THINGS = [f"{thing} {state}" for thing in ("a door", "the fan", "a lamp")
          for state in ("is on", "is off", "is new", "stands open")]  # fmt: skip
QUIET = SilentReporter()
SMALL = [
    "vocabulary.size=270",
    "data.max_tokens=16",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_ff=32",
    "model.num_layers=1",
    "training.precision=float32",
    "training.device=cpu",
]
SHORT = ["training.max_steps=1", "labels.valid_share=0.4"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def labels(tmp_path: Path) -> Callable[..., str]:
    def make(*names: str) -> str:
        path = tmp_path / f"{'-'.join(names)}.tsv"
        rows = [f"{names[row % len(names)]}\t{text}\n" for row, text in enumerate(THINGS)]
        path.write_text("".join(rows), encoding="utf-8")
        return f'labels.train=["{path}"]'

    return make


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in THINGS), encoding="utf-8")
    more = [f'data.text=["{text}"]', "data.valid_share=0.4", "training.max_steps=1"]
    train(load_recipe("bert-mini", [*SMALL, *more]), tmp_path / "encoder", reporter=QUIET)
    return tmp_path / "encoder"


def plan(*changes: str) -> EncoderRecipe:
    recipe = classifier_recipe("bert-mini", ['labels.train=["a"]', *changes])
    given = [change.partition("=")[0] for change in changes]
    return planned(recipe, 3, 40, given)


def test_a_plan_is_for_the_epochs_with_a_warm_up_and_a_checkpoint_after_each() -> None:
    training = plan().training
    assert (training.max_steps, training.checkpoint_every, training.log_every) == (120, 40, 10)
    assert training.schedule.warmup_steps == 12


def test_steps_that_are_given_are_planned_for_too() -> None:
    training = plan("training.max_steps=50").training
    assert (training.max_steps, training.checkpoint_every) == (50, 40)
    assert training.schedule.warmup_steps == 5


@pytest.mark.parametrize("steps", [[], ["training.max_steps=50"]])
def test_what_is_set_is_not_planned_anew(steps: list[str]) -> None:
    keys = {"checkpoint_every": 7, "log_every": 3, "schedule.warmup_steps": 0}
    found = plan(*steps, *(f"training.{key}={value}" for key, value in keys.items())).training
    assert (found.checkpoint_every, found.log_every, found.schedule.warmup_steps) == (7, 3, 0)


@pytest.mark.parametrize("kind", ["paper", "inverse_square_root", "cosine"])
def test_another_schedule_and_another_optimizer_may_be_set(kind: str) -> None:
    found = plan(f"training.schedule.kind={kind}", "training.optimizer.kind=adam").training
    assert (found.schedule.kind, found.schedule.warmup_steps) == (kind, 12)


def test_a_run_that_was_set_otherwise_is_done_so(
    encoder: Path, labels: Callable[..., str], tmp_path: Path
) -> None:
    changes = [labels("x", "y"), "labels.valid_share=0.4", "training.checkpoint_every=2"]
    recipe = classifier_recipe(encoder, changes)
    given = ["training.checkpoint_every"]
    result = finetune(recipe, tmp_path / "run", epochs=5, given=given, reporter=QUIET)
    assert load_recipe(tmp_path / "run").training.checkpoint_every == 2
    assert result.step == 5


def test_a_classifier_of_other_labels_starts_from_a_classifier(
    encoder: Path, labels: Callable[..., str], tmp_path: Path
) -> None:
    one = classifier_recipe(
        encoder,
        [*SHORT, labels("b", "a"), 'labels.names=["b", "a"]', "lora.rank=2",
         "training.patience=3", "training.ema_decay=0.5"],
    )  # fmt: skip
    finetune(one, tmp_path / "one", reporter=QUIET)
    other = classifier_recipe(tmp_path / "one", [*SHORT, labels("c", "a", "d")])
    assert (other.labels.names, other.lora.rank) == ((), 0)
    assert (other.training.patience, other.training.ema_decay) == (0, 0)
    assert other.labels.valid == ""
    finetune(other, tmp_path / "other", reporter=QUIET)
    saved = load_recipe_of(EncoderRecipe, tmp_path / "other")
    assert saved.labels.names == ("a", "c", "d")
    same = classifier_recipe(tmp_path / "one", [*SHORT, labels("a", "b")])
    assert same.labels.names == ("b", "a")
    model = assemble(same, tmp_path / "aside", say=lambda text: None).model
    kept = RunFolder.open(tmp_path / "one").load_weights()["classifier.weight"]
    assert torch.equal(model.state_dict()["classifier.weight"], kept)


def test_a_new_head_is_trained_and_saved_whatever_it_is(
    encoder: Path, labels: Callable[..., str], tmp_path: Path
) -> None:
    made = classifier_recipe(encoder, [*SHORT, labels("a", "b")])
    finetune(made, tmp_path / "classifier", reporter=QUIET)
    text = tmp_path / "text"
    more = [f'data.text=["{text}"]', "data.valid_share=0.4", "training.max_steps=2"]
    learn = ["lora.rank=2", "training.schedule.learning_rate=0.1"]
    back = load_recipe("bert-mini", [*SMALL, *more, *learn])
    train(back, tmp_path / "back", init=tmp_path / "classifier", reporter=QUIET)
    weights = RunFolder.open(tmp_path / "back").load_weights()
    assert {"prediction.bias", "prediction.dense.weight"} <= set(weights)
    assert weights["prediction.bias"].any()


def test_a_vocabulary_of_ones_own_is_refused_with_a_run(
    encoder: Path, labels: Callable[..., str]
) -> None:
    with pytest.raises(RecipeError) as refused:
        classifier_recipe(encoder, [labels("a", "b"), "vocabulary.size=300"])
    assert str(refused.value) == (
        "--set vocabulary.size: has no effect with --init: the vocabulary comes from that run"
    )


@pytest.mark.parametrize("name", ["bert", "bert-mini"])
def test_a_folder_of_a_recipes_name_is_not_passed_over(
    name: str, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder.rename(encoder.parent / name)
    monkeypatch.chdir(encoder.parent)
    with pytest.raises(RecipeError) as refused:
        classifier_recipe(name, ['labels.train=["a"]'])
    assert str(refused.value) == (
        f"{name}: is the name of a recipe and of a folder here\n"
        f"  Write ./{name} for the folder; for the recipe, go to another folder."
    )
    assert classifier_recipe(f"./{name}", ['labels.train=["a"]']).init == f"./{name}"


def test_what_to_type_next_means_the_run_and_not_a_recipe_of_its_name() -> None:
    recipe = load_recipe("bert-mini")
    for name, typed in (("bert", "./bert"), ("runs/bert", "runs/bert"), ("mine", "mine")):
        commands = next_commands(Path(name), recipe)
        assert commands[-2:] == [
            f"regard finetune {typed} --labels train.tsv --out RUN",
            f"regard info {typed}",
        ]


def test_a_new_classifier_looks_at_what_the_vectors_are_made_of(
    encoder: Path, labels: Callable[..., str]
) -> None:
    changes = [labels("a", "b")]
    assert classifier_recipe(encoder, changes).model.classifier_pooling == "mean"
    asked = [*changes, "model.classifier_pooling=cls"]
    assert classifier_recipe(encoder, asked).model.classifier_pooling == "cls"
