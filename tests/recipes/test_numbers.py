"""No number in a recipe ends as a traceback: it is refused by its key, or a run can have it."""

from pathlib import Path

import pytest
from recipes.recipe_numbers import Number, all_numbers

from regard.errors import RecipeError, RegardError
from regard.recipes.load import load_recipe
from regard.recipes.memory import require_memory
from regard.recipes.recipe import FAMILIES
from regard.recipes.run import train
from regard.training.progress import SilentReporter

EVERY = all_numbers()
# Signed, so that less than 0 is right for them.
SIGNED = {"decoding.alpha", "decoding.seed"}
NEVER = ["9223372036854775808", f"1{30 * '0'}", "nan", "inf", "-inf", "1e308", "true", '"x"']


def test_numbers_of_every_family_and_kind_are_found() -> None:
    keys = {number.key for number in EVERY}
    assert len(keys) > 80
    for key in (
        "model.d_model",
        "model.encoder.mixer.global_tokens",
        "training.schedule.scale",
        "model.positions.scaling.beta_fast",
        "generation.top_k",
        "masking.rate",
    ):
        assert key in keys, key  # fmt: skip
    assert {number.family for number in EVERY} == set(FAMILIES)


@pytest.mark.parametrize("number", EVERY, ids=str)
def test_what_no_number_can_be_is_refused_by_its_key(number: Number, tmp_path: Path) -> None:
    never = NEVER if number.key in SIGNED else [*NEVER, "-1", "-1.5"]
    if number.key == "decoding.alpha":  # of any size: scores stay finite, see test_beam.py
        never = ["nan", "inf", "-inf", "true", '"x"']
    for value in never:
        with pytest.raises(RecipeError) as caught:
            number.recipe(value, tmp_path)
        assert number.key.rpartition(".")[2] in str(caught.value), value
    if number.whole:
        with pytest.raises(RecipeError, match="expected a whole number"):
            number.recipe("0.5", tmp_path)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    words = [f"{first}{second}" for first in "bdfgklmn" for second in "aeiou"]
    pairs = list(zip(words, reversed(words), strict=True))
    tsv = "".join(f"{a} {b}\t{b} {a}\n" for a, b in pairs)
    (folder / "pairs.tsv").write_text(tsv, encoding="utf-8")
    lines = "".join(f"{a} {b}\n" for a, b in pairs)
    (folder / "text.txt").write_text(lines, encoding="utf-8")
    return folder


# Those that once ended as bugs, at their bounds and far out.
WILD = [
    ("seq2seq", ["model.encoder.mixer.kind=window", "model.encoder.mixer.dilation=1048576"]),
    ("seq2seq", ["model.encoder.mixer.kind=window", "model.encoder.mixer.window=1048576"]),
    ("seq2seq", ["model.decoder.mixer.kind=window", "model.decoder.mixer.global_tokens=4096"]),
    ("seq2seq", ["model.encoder.mixer.kind=bigbird", "model.encoder.mixer.block=1048576",
                 "model.encoder.mixer.random_blocks=1048576"]),
    ("seq2seq", ["model.encoder.mixer.kind=convolution", "model.encoder.mixer.dilation=1048576"]),
    ("seq2seq", ["model.decoder.mixer.kind=convolution", "model.decoder.mixer.dilation=1048576"]),
    ("decoder", ["model.window=1048576", "model.positions.kind=none"]),
    ("decoder", ["model.positions.kind=rotary", "model.positions.scaling.kind=yarn",
                 "model.positions.scaling.beta_fast=1e-6"]),
    ("encoder", ["model.attention_scale=1e6"]),
    ("encoder", ["masking.rate=5e-324"]),
]  # fmt: skip


@pytest.mark.parametrize(("family", "changes"), WILD, ids=str)
def test_a_run_can_have_what_a_recipe_may_say(
    family: str, changes: list[str], text: Path, tmp_path: Path
) -> None:
    [number] = [each for each in EVERY if each.family == family and each.key == "training.seed"]
    key = "data.tsv" if family == "seq2seq" else "data.text"
    file = text / ("pairs.tsv" if family == "seq2seq" else "text.txt")
    number.recipe(1, tmp_path)  # writes the file of the family
    more = (f'{key}=["{file}"]', "training.max_steps=1", *changes)
    recipe = Number(number.family, number.key, True, number.field, more).recipe(1, tmp_path)
    try:
        train(recipe, tmp_path / "run", reporter=SilentReporter())
    except RegardError as error:
        assert "none of the" in str(error)  # no step changed the model; it says why


@pytest.mark.parametrize("name", ["base", "gpt2", "bert-base"])
def test_a_model_too_large_for_any_machine_is_refused_before_it_is_made(name: str) -> None:
    recipe = load_recipe(name, ["model.d_model=1048560"])
    with pytest.raises(RecipeError, match=r"^model\.d_model: the model needs [0-9.,]+ [TP]iB"):
        require_memory(recipe)


def test_a_weight_of_a_file_is_bounded() -> None:
    for given in ("1e-7", "1e7"):
        with pytest.raises(RecipeError, match=r"weights must be from 1e-06 to 1e\+06"):
            load_recipe("tiny", ['data.tsv=["a"]', f"data.weights=[{given}]"])
    load_recipe("tiny", ['data.tsv=["a", "b"]', "data.weights=[1e-6, 1e6]"])
