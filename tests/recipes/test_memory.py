"""A model that the machine can't hold is refused before any text is read."""

import os
from pathlib import Path

import pytest
from serving.tiny_families import make_encoder_run, make_language_run
from serving.tiny_runs import make_run

from regard import machine
from regard.cli import main
from regard.errors import RecipeError
from regard.recipes import memory
from regard.recipes.load import load_recipe
from regard.recipes.memory import require_memory

TEXT = ["--text=none.txt", "--out=run"]
PAIRS = ["--tsv=none.tsv", "--out=run"]
LABELS = ["--labels=none.tsv", "--out=run"]
HINT = "  Choose a smaller one: regard info counts the parameters of a recipe.\n"


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "most_memory", lambda: 16 * 2**30)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "key", "needed"),
    [
        (["train", "gpt-char", *TEXT, "--set=model.d_model=1000000"], "model.d_model", "232.9 TiB"),
        (["train", "gpt2", *TEXT, "--set=model.d_ff=10000000"], "model.d_ff", "2.7 TiB"),
        (["train", "gpt2", *TEXT, "--set=model.num_layers=9999"], "model.num_layers", "1.0 TiB"),
        (["train", "bert-mini", *TEXT, "--set=model.d_ff=100000000"], "model.d_ff", "3.0 TiB"),
        (
            ["train", "gpt2", *TEXT, "--set=model.positions.max_positions=1000000000000"],
            "model.positions.max_positions",
            "10.9 PiB",
        ),
        (["train", "base", *PAIRS, "--set=model.d_model=1000000"], "model.d_model", "1.0 PiB"),
        (
            ["finetune", "bert-mini", *LABELS, "--set=model.d_model=1000000"],
            "model.d_model",
            "233.0 TiB",
        ),
        (["demo", "--out=run", "--set=model.d_model=1000000"], "model.d_model", "524.1 TiB"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_each_family_names_the_key_that_is_too_large(
    line: list[str], key: str, needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*line, "--set=training.device=cpu"]) == 2
    assert capsys.readouterr().err == (
        f"error: {key}: the model needs {needed}, this machine has 16.0 GiB\n{HINT}"
    )
    assert not Path("run").exists()


@pytest.mark.parametrize("make", [make_run, make_language_run, make_encoder_run])
def test_an_adaptation_that_is_too_large_is_refused(
    make: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(make)
    run = make(Path("ours"))
    data = PAIRS if make is make_run else TEXT
    line = ["train", str(run), "--init", str(run), *data, "--set=lora.rank=100000000000"]
    assert main([*line, "--set=training.device=cpu"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: lora.rank: the model needs 23.3 TiB, this machine has 16.0 GiB")
    assert not Path("run").exists()


def test_a_vocabulary_that_is_too_large_is_refused_once_it_is_known() -> None:
    recipe = load_recipe("tiny", ["training.device=cpu"])
    require_memory(recipe)
    require_memory(recipe, 500_000, 500_000)
    with pytest.raises(RecipeError) as refused:
        require_memory(recipe, 50_000_000, 50_000_000)
    assert str(refused.value).startswith("vocabulary.size: the model needs ")


@pytest.mark.parametrize("name", ["tiny", "big", "gpt2", "bert-base", "llama-mini"])
def test_what_fits_is_not_refused(name: str) -> None:
    require_memory(load_recipe(name, ["training.device=cpu"]))


def test_nothing_is_refused_where_the_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "most_memory", lambda: None)
    require_memory(load_recipe("tiny", ["model.d_model=1000000000"]))


def test_more_layers_than_there_could_be_are_refused_by_the_recipe() -> None:
    for name, key in (("gpt2", "num_layers"), ("bert-base", "num_layers"),
                      ("base", "encoder_layers"), ("base", "decoder_layers")):  # fmt: skip
        with pytest.raises(RecipeError) as refused:
            load_recipe(name, [f"model.{key}={10**12}"])
        assert str(refused.value) == (
            f"--set model.{key}: expected a whole number that is at least 1 and at most 10000, "
            f"got {10**12}"
        )


def test_the_memory_is_that_of_this_machine() -> None:
    most = machine.most_memory()
    if most is not None:
        assert 2**28 < most < 2**50
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert most <= 3 * physical
