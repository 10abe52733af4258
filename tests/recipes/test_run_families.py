"""Training of decoders, encoders and classifiers from a recipe, stopped and gone on with."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import DivergenceError, RecipeError, RegardError
from regard.evaluation.records import of_event, read_metrics
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.recipes.assembly import assemble
from regard.recipes.finetune import classifier_recipe
from regard.recipes.load import load_recipe, load_recipe_of
from regard.recipes.recipe import AnyRecipe, DecoderRecipe, EncoderRecipe
from regard.recipes.run import finetune, resume, train
from regard.training.progress import SilentReporter
from regard.weights.run_folder import RunFolder

THINGS = ("the light", "the door", "a fan", "the old lamp", "one small window")
STATES = ("is on", "is off", "is new", "stands open", "was closed again")
LINES = [f"{thing} {state}." for thing in THINGS for state in STATES]


class Listener(SilentReporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


SMALL = [
    "vocabulary.size=270",
    "data.documents=line",
    "data.valid_share=0.3",
    "data.max_tokens=16",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_ff=32",
    "model.num_layers=2",
    "model.dropout=0.1",
    "training.max_steps=4",
    "training.checkpoint_every=2",
    "training.precision=float32",
    "training.batch_tokens=64",
    "training.device=cpu",
    "training.log_every=1",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.tsv"
    lines = [f"{'open' if 'open' in line or 'on' in line else 'shut'}\t{line}" for line in LINES]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def recipe(text: Path, labels: Path) -> Callable[..., AnyRecipe]:
    def make(family: str, *changes: str) -> AnyRecipe:
        name = "gpt-mini" if family == "decoder" else "bert-mini"
        where = [f'labels.train=["{labels}"]'] if family == "classifier" else []
        where = where or [f'data.text=["{text}"]']
        return load_recipe(name, [*SMALL, *where, *changes])

    return make


def files_of(run: Path, step: int) -> dict[str, bytes]:
    folder = run / f"checkpoints/step-{step:08d}"
    return {
        name: (folder / f"{name}.safetensors").read_bytes()
        for name in ("model", "optimizer", "random")
    }


@pytest.mark.parametrize("family", ["decoder", "encoder", "classifier"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    family: str, recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    train(recipe(family), tmp_path / "whole", reporter=Listener())
    train(recipe(family, "training.max_steps=2"), tmp_path / "cut", reporter=Listener())
    assert files_of(tmp_path / "whole", 4) != files_of(tmp_path / "cut", 2)
    resume(tmp_path / "cut", ["training.max_steps=4"], reporter=Listener())
    assert files_of(tmp_path / "whole", 4) == files_of(tmp_path / "cut", 4)


@pytest.mark.parametrize("family", ["decoder", "encoder", "classifier"])
def test_a_step_in_parts_is_the_same_step(
    family: str, recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    weights = []
    for parts in (1, 3):
        changes = (f"training.accumulate={parts}", "model.dropout=0", "training.max_steps=1")
        run = tmp_path / f"{parts}"
        train(recipe(family, *changes), run, reporter=Listener())
        weights.append(RunFolder.open(run).load_weights())
    for name, whole in weights[0].items():
        torch.testing.assert_close(weights[1][name], whole, rtol=1e-4, atol=1e-5)


def test_the_figures_of_a_family_are_in_its_records_and_its_report(
    recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    found = {}
    for family in ("decoder", "encoder", "classifier"):
        run = tmp_path / family
        listener = Listener()
        result = train(recipe(family), run, reporter=listener)
        assert result is not None
        assert result.best_value is not None
        (found[family],) = of_event(read_metrics(run / "metrics.jsonl", print), "valid")[-1:]
        page = (run / "report.html").read_text(encoding="utf-8")
        assert "Loss" in page
        saved = load_recipe(run)
        assert saved.family == ("decoder" if family == "decoder" else "encoder")
        assert saved.model == recipe(family).model.resolved()
    assert {"loss", "perplexity", "bits_per_byte"} <= set(found["decoder"])
    assert all(sample["prompt"] in " ".join(LINES) for sample in found["decoder"]["samples"])
    assert {"loss", "perplexity", "accuracy"} <= set(found["encoder"])
    classified = found["classifier"]
    assert classified["labels"] == ["open", "shut"]
    counts = classified["confusion"]
    right = sum(counts[place][place] for place in range(2))
    assert classified["accuracy"] == right / sum(map(sum, counts))
    assert "What it took for what" in page
    assert load_recipe_of(EncoderRecipe, run).labels.names == ("open", "shut")


@pytest.mark.parametrize(
    ("family", "used", "command"),
    [
        ("decoder", "a text", "regard generate "),
        ("encoder", "filling", "regard fill "),
        ("classifier", "classifying", "regard classify "),
    ],
)
def test_what_is_said_fits_the_family(
    family: str, used: str, command: str, recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    listener = Listener()
    train(recipe(family), tmp_path / "run", dry_run=True, reporter=listener)
    assert sorted(tmp_path.rglob("*")) == before
    assert f"a checkpoint, a validation and {used} worked" in "\n".join(listener.said)
    listener = Listener()
    train(recipe(family), tmp_path / "run", reporter=listener)
    assert command in listener.said[-1]
    assert "regard translate" not in listener.said[-1]


@pytest.mark.parametrize("positions", [16, 5, 2])
def test_a_validation_begins_texts_that_the_positions_have_room_for(
    positions: int, recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    short = [f"model.positions.max_positions={positions}", f"data.max_tokens={positions}"]
    train(recipe("decoder", *short), tmp_path / "run", reporter=Listener())
    records = of_event(read_metrics(tmp_path / "run/metrics.jsonl", print), "valid")
    text = " ".join(LINES)
    assert all(sample["prompt"] in text for sample in records[-1]["samples"])


def test_a_share_is_said_in_percent(recipe: Callable[..., AnyRecipe], tmp_path: Path) -> None:
    listener = Listener()
    train(recipe("classifier", "training.best_metric=f1"), tmp_path / "run", reporter=listener)
    assert re.search(r"the best by f1 \(\d+\.\d %\)", listener.said[-1])


def test_a_language_model_learns_its_text(recipe: Callable[..., AnyRecipe], tmp_path: Path) -> None:
    changes = [
        "training.max_steps=120",
        "training.checkpoint_every=120",
        "training.schedule.learning_rate=1e-2",
        "training.schedule.warmup_steps=5",
        "training.batch_tokens=256",
        "model.d_model=32",
        "model.dropout=0",
    ]
    train(recipe("decoder", *changes), tmp_path / "run", reporter=Listener())
    losses = [
        record["loss"]
        for record in of_event(read_metrics(tmp_path / "run/metrics.jsonl", print), "train")
    ]
    assert losses[0] > 4
    assert losses[-1] < 2


def test_fine_tuning_starts_from_the_encoder_and_has_a_classifier_of_its_own(
    recipe: Callable[..., AnyRecipe], labels: Path, tmp_path: Path
) -> None:
    train(recipe("encoder"), tmp_path / "first", reporter=Listener())
    made = classifier_recipe(tmp_path / "first", [f'labels.train=["{labels}"]'])
    assert made.training.best_metric == "f1"
    assert made.model.d_model == 16
    assembly = assemble(made, tmp_path / "aside", say=lambda text: None)
    assert isinstance(assembly.model, TextEncoder)
    ours, theirs = assembly.model.state_dict(), RunFolder.open(tmp_path / "first").load_weights()
    new = {name for name in ours if name not in theirs}
    assert new == {"classifier.weight", "classifier.bias"}
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if name not in new)
    assert {name.split(".")[0] for name in theirs if name not in ours} == {"prediction"}
    result = finetune(made, tmp_path / "second", epochs=3, reporter=Listener())
    batches = assembly.batches().count(0)  # type: ignore[attr-defined]
    assert result.step == 3 * batches
    saved = load_recipe(tmp_path / "second")
    assert saved.training.checkpoint_every == batches
    assert RunFolder.open(tmp_path / "second").tokenizer_files() == (
        RunFolder.open(tmp_path / "first").tokenizer_files()
    )
    steps = f"training.max_steps={result.step + 1}"
    assert resume(tmp_path / "second", [steps], reporter=Listener()).step == result.step + 1


def test_a_classifier_may_start_from_nothing(labels: Path, tmp_path: Path) -> None:
    made = classifier_recipe("bert-mini", [*SMALL, f'labels.train=["{labels}"]'])
    assert made.init == ""
    assert finetune(made, tmp_path / "run", reporter=Listener()).step == 4


def test_a_language_model_goes_on_from_anothers_weights_and_vocabulary(
    recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    train(recipe("decoder"), tmp_path / "first", reporter=Listener())
    changed = recipe("decoder", "vocabulary.size=300").model_copy(
        update={"init": str(tmp_path / "first")}
    )
    assembly = assemble(changed, tmp_path / "aside", say=lambda text: None)
    assert isinstance(assembly.model, LanguageModel)
    theirs = RunFolder.open(tmp_path / "first").load_weights()
    assert all(torch.equal(theirs[name], w) for name, w in assembly.model.state_dict().items())
    assert assembly.recipe.vocabulary.size == 270


def test_low_rank_adaptation_trains_and_goes_on_with_its_factors_alone(
    recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    train(recipe("decoder"), tmp_path / "first", reporter=Listener())
    adapted = recipe("decoder", "lora.rank=2").model_copy(update={"init": str(tmp_path / "first")})
    train(adapted, tmp_path / "whole", reporter=Listener())
    whole = (tmp_path / "whole/model.safetensors").stat().st_size
    assert whole < (tmp_path / "first/model.safetensors").stat().st_size / 2
    short = adapted.training.model_copy(update={"max_steps": 2})
    cut = adapted.model_copy(update={"training": short})
    train(cut, tmp_path / "cut", reporter=Listener())
    resume(tmp_path / "cut", ["training.max_steps=4"], reporter=Listener())
    assert files_of(tmp_path / "whole", 4) == files_of(tmp_path / "cut", 4)


REFUSALS = {
    "no text": (
        "decoder", ["data.text=[]"],
        "data.text: there is no text to train on\n  Give it with --text FILE.",
    ),
    "a vocabulary from elsewhere": (
        "encoder", ["vocabulary.kind=foreign"],
        "vocabulary.kind: a vocabulary from elsewhere can't be trained\n"
        "  Start from the run that has it, with --init RUN, or choose another kind.",
    ),
    "nothing to adapt": (
        "decoder", ["lora.rank=2"],
        "lora.rank: lora.rank = 2 adapts a model that is trained already\n"
        "  Name its run with --init RUN.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_trained_is_refused(
    case: str, recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    family, changes, problem = REFUSALS[case]
    with pytest.raises(RecipeError) as refused:
        train(recipe(family, *changes), tmp_path / "run", reporter=Listener())
    assert str(refused.value) == problem


def test_starting_from_another_family_is_refused(
    recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    train(recipe("decoder"), tmp_path / "first", reporter=Listener())
    with pytest.raises(RecipeError) as refused:
        train(recipe("encoder"), tmp_path / "run", init=tmp_path / "first", reporter=Listener())
    assert str(refused.value) == (
        f'--init {tmp_path / "first"}: the run is of the family "decoder", and the recipe of '
        '"encoder"'
    )


def test_another_text_is_refused_at_a_resume(
    recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    train(recipe("decoder"), tmp_path / "run", reporter=Listener())
    other = tmp_path / "other.txt"
    other.write_text("another text\n" * 9, encoding="utf-8")
    for change in (f'data.text=["{other}"]', "data.max_tokens=12"):
        with pytest.raises(RegardError, match=r"the training (text|data) "):
            resume(tmp_path / "run", ["training.max_steps=5", change], reporter=Listener())
    assert resume(tmp_path / "run", ["training.max_steps=5"], reporter=Listener()).step == 5


def test_a_run_is_described_with_its_classes(
    recipe: Callable[..., AnyRecipe], tmp_path: Path
) -> None:
    from regard.recipes.describe import describe, to_json

    for family in ("decoder", "encoder", "classifier"):
        train(recipe(family), tmp_path / family, reporter=Listener())
        found = json.loads(to_json(describe(str(tmp_path / family))))
        held = RunFolder.open(tmp_path / family).load_weights()
        assert found["parameters"] == sum(weight.numel() for weight in held.values())
    assert isinstance(load_recipe(tmp_path / "decoder"), DecoderRecipe)


@pytest.mark.parametrize("family", ["decoder", "encoder", "classifier"])
def test_a_loss_that_is_not_finite_names_the_lines_of_its_batch(
    family: str, recipe: Callable[..., AnyRecipe], text: Path, labels: Path, tmp_path: Path
) -> None:
    change = "training.schedule.learning_rate=1e6"
    with pytest.raises(DivergenceError) as refused:
        train(
            recipe(
                family,
                change,
                "training.schedule.warmup_steps=0",
                "training.max_steps=9",
                "training.max_skipped=1",
            ),
            tmp_path / "run",
            reporter=Listener(),
        )
    file = labels if family == "classifier" else text
    found = re.search(r"Its batch holds th(?:is|ese) lines? of ([^\n]+): \d", str(refused.value))
    assert found is not None
    assert found[1] == str(file)
    assert "Try a lower learning rate" in str(refused.value)
