"""Training from a recipe: into a run folder, on from one, from another's weights, or not."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from regard.errors import Interrupted, RecipeError, RegardError, RunFolderError
from regard.evaluation.records import of_event, read_metrics
from regard.recipes.assembly import assemble
from regard.recipes.load import load_recipe
from regard.recipes.recipe import Recipe
from regard.recipes.run import resume, train
from regard.training.progress import SilentReporter
from regard.weights.run_folder import RunFolder

PAIRS = [
    (f"{thing} {state}", f"{ding} {stand}")
    for thing, ding in (("the light", "das Licht"), ("the door", "die Tür"), ("a fan", "ein Fan"))
    for state, stand in (("is on", "ist an"), ("is off", "ist aus"), ("is new", "ist neu"))
]


class Listener(SilentReporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Recipe]:
    text = tmp_path / "pairs.tsv"
    text.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")

    def make(*changes: str) -> Recipe:
        return load_recipe(
            "tiny",
            [
                f'data.tsv=["{text}"]',
                f"data.valid_tsv={text}",
                "vocabulary.size=270",
                "model.d_model=16",
                "model.d_ff=16",
                "training.max_steps=4",
                "training.checkpoint_every=2",
                "training.precision=float32",
                "training.batch_tokens=60",
                "training.best_metric=loss",
                "training.device=cpu",
                "decoding.max_extra_tokens=2",
                "decoding.beam=1",
                *changes,
            ],
        )

    return make


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return RunFolder.open(run).load_weights()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_folder_says_all_that_made_it(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    listener = Listener()
    result = train(recipe(), tmp_path / "run", reporter=listener)
    assert result is not None
    assert (result.step, result.reason) == (4, "max_steps")
    saved = load_recipe(tmp_path / "run")
    assert saved.model == recipe().model.resolved()
    assert saved.training == recipe().training
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "max_steps = 4" in page
    assert "das Licht" in page
    assert f"regard translate {tmp_path / 'run'} < in.txt > out.txt" in listener.said[-1]


def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(recipe(), tmp_path / "whole", reporter=Listener())
    train(recipe("training.max_steps=2"), tmp_path / "cut", reporter=Listener())
    assert not same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "cut"))
    resume(tmp_path / "cut", ["training.max_steps=4"], reporter=Listener())
    whole, cut = (tmp_path / name / "checkpoints/step-00000004" for name in ("whole", "cut"))
    for file in ("model", "optimizer", "random"):
        name = f"{file}.safetensors"
        assert (whole / name).read_bytes() == (cut / name).read_bytes()


def test_a_run_named_like_a_recipe_is_gone_on_with(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train(recipe("training.max_steps=2"), "base", reporter=Listener())
    result = resume("base", ["training.max_steps=3"], reporter=Listener())
    assert result.step == 3
    assert load_recipe(Path("base")).model.d_model == 16


def test_fine_tuning_starts_from_the_weights_and_vocabulary_of_the_other_run(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(recipe(), tmp_path / "first", reporter=Listener())
    other = tmp_path / "other.tsv"
    other.write_text("zebra quartz\tZebra Quarz\n" * 5, encoding="utf-8")
    changed = recipe(f'data.tsv=["{other}"]', f"data.valid_tsv={other}", "model.dropout=0.3")
    changed = changed.model_copy(update={"init": str(tmp_path / "first")})
    assembly = assemble(changed, tmp_path / "aside", say=lambda text: None)
    assert same(assembly.model.state_dict(), weights_of(tmp_path / "first"))
    train(changed, tmp_path / "second", reporter=Listener())
    first, second = (RunFolder.open(tmp_path / name) for name in ("first", "second"))
    assert first.tokenizer_files() == second.tokenizer_files()
    assert load_recipe(tmp_path / "second").init == str(tmp_path / "first")
    # The first run may be gone by then: the second has all it needs.
    (tmp_path / "first/model.safetensors").unlink()
    assert resume(tmp_path / "second", ["training.max_steps=5"], reporter=Listener()).step == 5


def test_a_dry_run_says_what_to_expect_and_writes_nothing(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    listener = Listener()
    assert train(recipe(), tmp_path / "run", dry_run=True, reporter=listener) is None
    text = "\n".join(listener.said)
    assert sorted(tmp_path.rglob("*")) == before
    for word in ("text, model, two steps", "precision", "a step", "time", "memory", "disk"):
        assert word in text
    assert "4 steps, and 2 validations" in text


def test_an_interrupted_dry_run_names_no_folder_to_go_on_with(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("regard.training.loop.Stepper.take", signalled)
    with pytest.raises(Interrupted) as stopped:
        train(recipe(), tmp_path / "run", dry_run=True, reporter=Listener())
    assert str(stopped.value) == "stopped as asked, before there was anything to save"


def test_the_report_of_a_resumed_run_has_every_step_once(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(recipe("training.max_steps=2"), tmp_path / "run", reporter=Listener())
    resume(tmp_path / "run", ["training.max_steps=4"], reporter=Listener())
    records = read_metrics(tmp_path / "run/metrics.jsonl", print)
    assert [record["step"] for record in of_event(records, "valid")] == [2, 4]
    assert [record["event"] for record in records if record["event"] in ("start", "resume")] == [
        "start", "resume",
    ]  # fmt: skip


def test_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as refused:
        train(load_recipe("tiny"), tmp_path / "run", reporter=Listener())
    assert str(refused.value) == (
        "data.source: there is no text to train on\n"
        "  Give two files, --source TEXT --target TEXT, or one, --tsv FILE."
    )


def test_fine_tuning_another_shape_is_refused(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    first = tmp_path / "first"
    train(recipe(), first, reporter=Listener())
    with pytest.raises(RecipeError) as refused:
        train(recipe("model.d_ff=32"), tmp_path / "second", init=first, reporter=Listener())
    assert str(refused.value) == (
        f"--init {first}: model.d_ff = 32 here, and 16 in the run to start from\n"
        f"  Train with the recipe of that run: regard train {first} --init {first} --out RUN"
    )


def test_resuming_a_model_without_checkpoints_is_refused(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(recipe(), run, reporter=Listener())
    for path in sorted((run / "checkpoints").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(RunFolderError) as refused:
        resume(run, reporter=Listener())
    assert str(refused.value) == (
        f"{run}: the run has a model and no checkpoint to go on from\n"
        f"  Start a new run from its weights: regard train {run} --init {run} --out RUN"
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("training.max_steps=3", "the run has done 4 steps and max_steps = 3"),
        ("data.tsv=[{other}]", "the training text is not what the run was trained on"),
        ("data.max_tokens=14", "the training text is not what the run was trained on"),
        ("data.weights=[2.0]", "the training data has changed since the checkpoint of step 4"),
    ],
)
def test_a_refused_resume_leaves_the_run_as_it_was(
    recipe: Callable[..., Recipe], tmp_path: Path, change: str, problem: str
) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("a fan is on\tein Fan ist an\n" * 3, encoding="utf-8")
    run = tmp_path / "run"
    train(recipe(), run, reporter=Listener())
    before = contents(run)
    with pytest.raises(RegardError, match=problem):
        resume(
            run,
            ["training.max_steps=5", change.replace("{other}", f'"{other}"')],
            reporter=Listener(),
        )
    assert contents(run) == before
    assert resume(run, ["training.max_steps=5"], reporter=Listener()).step == 5


def test_the_file_that_has_changed_is_the_one_that_is_named(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("a fan is on\tein Fan ist an\n" * 3, encoding="utf-8")
    run = tmp_path / "run"
    train(recipe(f'data.tsv=["{tmp_path / "pairs.tsv"}", "{other}"]'), run, reporter=Listener())
    other.write_text("a fan is on\tein Fan ist aus\n" * 3, encoding="utf-8")
    with pytest.raises(RegardError) as refused:
        resume(run, ["training.max_steps=5"], reporter=Listener())
    assert str(refused.value).startswith(f"{other}: the training text is not what the run was")


def test_text_that_came_back_or_moved_is_gone_on_with(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(recipe(), run, reporter=Listener())
    moved = (tmp_path / "pairs.tsv").rename(tmp_path / "moved.tsv")
    shutil.rmtree(run / "data")
    keys = [f'data.tsv=["{moved}"]', f"data.valid_tsv={moved}", "training.max_steps=5"]
    assert resume(run, keys, reporter=Listener()).step == 5


def test_another_metric_does_not_compare_with_the_former_ones_best(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(recipe("training.best_metric=bleu"), run, reporter=Listener())
    listener = Listener()
    result = resume(run, ["training.best_metric=loss", "training.max_steps=6"], reporter=listener)
    assert (
        "best_metric or what is measured has changed: the best so far is forgotten" in listener.said
    )
    losses = [
        record["loss"]
        for record in of_event(read_metrics(run / "metrics.jsonl", print), "valid")
        if record["step"] > 4
    ]
    assert result.best_value == min(losses)


@pytest.mark.parametrize("loss", ["missing", "damaged", "that of step 9"])
@pytest.mark.parametrize("average", [(), ("training.ema_decay=0.9",)])
def test_a_best_model_that_is_lost_is_made_again_to_the_bit_and_it_is_said_why(
    recipe: Callable[..., Recipe], tmp_path: Path, loss: str, average: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    train(recipe(*average), run, reporter=Listener())
    path = run / "model.safetensors"
    best = path.read_bytes()
    notes = RunFolder.open(run).model_notes()
    match loss:
        case "missing":
            path.unlink()
        case "damaged":
            path.write_bytes(best[:-1])
        case _:
            with RunFolder.open(run, write=True) as folder:
                folder.write_model(folder.load_weights(), {**notes, "step": "9"})
    listener = Listener()
    resume(run, reporter=listener)
    assert (
        f"{path} is {loss}: the model is made again from the best checkpoint, that of step "
        f"{notes['step']}"
    ) in listener.said
    assert path.read_bytes() == best


def test_the_time_of_a_run_that_is_resumed_with_nothing_to_do_does_not_shrink(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that stands still but for the end of the first start, after its last save."""
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    now = [0.0]
    monkeypatch.setattr("regard.training.journal.time", clock)
    monkeypatch.setattr("regard.training.loop.Keeper.wait", lambda self: now.append(now.pop() + 9))
    first = train(recipe(), tmp_path / "run", reporter=Listener())
    monkeypatch.setattr("regard.training.loop.Keeper.wait", lambda self: None)
    again = resume(tmp_path / "run", reporter=Listener())
    assert first is not None
    assert first.seconds >= 9
    assert again.seconds == first.seconds


def test_fine_tuning_says_whose_vocabulary_it_has(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(recipe(), tmp_path / "first", reporter=Listener())
    train(
        recipe("vocabulary.size=400"),
        tmp_path / "second",
        init=tmp_path / "first",
        reporter=Listener(),
    )
    assert load_recipe(tmp_path / "second").vocabulary.size == 270


def test_a_run_stopped_before_it_began_says_what_to_do(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").close()
    with pytest.raises(RunFolderError) as refused:
        resume(tmp_path / "run", reporter=Listener())
    assert str(refused.value) == (
        f"{tmp_path / 'run'}: the run was stopped before anything of it was saved\n"
        "  Start it again with the command that began it."
    )


def test_a_damaged_checkpoint_is_told_once(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(recipe(), run, reporter=Listener())
    (run / "checkpoints/step-00000004/optimizer.safetensors").write_bytes(b"")
    listener = Listener()
    resume(run, reporter=listener)
    assert sum("the checkpoint of step 4 is passed over" in text for text in listener.said) == 1


def test_a_complete_run_that_can_have_no_report_is_said_to_be_done(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(recipe("training.max_steps=2"), run, reporter=Listener())
    (run / "report.html").unlink()
    (run / "report.html").mkdir()
    listener = Listener()
    assert resume(run, ["training.max_steps=4"], reporter=listener).step == 4
    lost = next(text for text in listener.said if "has no report" in text)
    assert lost.startswith(
        f"the training is complete, but it has no report: {run / 'report.html'}: "
        "cannot be written: Is a directory\n"
    )
    assert listener.said[-1].startswith("done: 4 steps in ")
    assert f"run folder: {run}\n" in listener.said[-1]
