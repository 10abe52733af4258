"""A command that is told to be typed means what it says, whatever the run's folder is called."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving.tiny_families import make_encoder_run
from serving.tiny_runs import SHAPE, make_run

import regard
from regard.cli import app
from regard.demo import demo_commands
from regard.errors import RecipeError, RegardError, RunFolderError, command
from regard.recipes.load import load_recipe
from regard.recipes.names import preset_names, resolve, typed
from regard.recipes.run import resume
from regard.recipes.start import require_same_shape
from regard.weights.run_folder import RunFolder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told() -> Iterator[tuple[str, str]]:
    """What is told of runs whose folders bear a recipe's name, with that name."""
    run = make_run(Path("tiny"))
    with pytest.raises(RecipeError) as other:
        require_same_shape(RunFolder.open(run), load_recipe("tiny", [*SHAPE, "model.d_ff=64"]))
    yield "tiny", other.value.hint
    with pytest.raises(RunFolderError) as no_checkpoint:
        resume("tiny")
    yield "tiny", no_checkpoint.value.hint
    make_encoder_run(Path("bert"), labels=())
    with pytest.raises(RegardError) as no_labels:
        regard.load_encoder("bert").classify("a")
    yield "bert", no_labels.value.hint
    Path("demo").mkdir()
    yield "demo", demo_commands(Path("demo"))[-1]


def test_a_run_that_bears_a_recipe_s_name_is_what_a_hint_means() -> None:
    for name, hint in told():
        words = shlex.split(hint[hint.index("regard ") :])
        function, bound, _ = app.parse_args(words[1:], print_error=False, exit_on_error=False)
        meant = resolve(bound.args[0])
        assert (meant.kind, meant.path) == ("run", Path(name)), (function.__name__, hint)


def test_to_go_on_with_a_run_that_bears_a_recipe_s_name_means_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """--resume goes with no recipe, so that its hints need no `./`."""
    seen: list[Path] = []
    monkeypatch.setattr("regard.recipes.run.resume", lambda run, changes: seen.append(run))
    for name in (*preset_names(), "gpt", "bert"):
        Path(name).mkdir()
        words = shlex.split(command("train", Path(name), "--resume"))
        app(words[1:], print_error=False, exit_on_error=False)
    assert [str(run) for run in seen] == [*preset_names(), "gpt", "bert"]


def test_a_folder_that_looks_like_an_option_is_typed_as_a_path() -> None:
    assert command("average", Path("-x"), "--last", 1) == "regard average ./-x --last 1"
    assert command("info", typed(Path("-x"))) == "regard info ./-x"
    assert command("generate", Path("x"), "--prompt", "- a") == "regard generate x --prompt '- a'"
