"""Runs that are packed for the engine: the same answers, and no undefined use of a hostile file."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving.command import Command
from serving.tiny_runs import TEXT, make_run

import regard
from regard.engine import native
from regard.engine.engine import Engine
from regard.errors import ModelError, RegardError, RunFolderError
from regard.recipes.load import load_recipe
from regard.recipes.recipe import Recipe
from regard.serving.quantize import quantize
from regard.weights.layout import PACKED
from regard.weights.packed import PackedWeights, packed_chunks, read_packed
from regard.weights.run_folder import RunFolder

pytestmark = pytest.mark.skipif(not native.available(), reason="the engine is not built")

DTYPES = ["float32", "bfloat16", "int8", "int4"]
Packed = Callable[[str], Path]


@pytest.fixture(scope="module")
def packed(run_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The run, packed in a dtype."""
    folder = tmp_path_factory.mktemp("packed")

    def path(dtype: str) -> Path:
        if not (folder / dtype).exists():
            quantize(run_path, folder / dtype, dtype)
        return folder / dtype

    return path


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_packed_run_gives_the_very_answers_of_one_packed_when_loaded(
    run_path: Path, packed: Packed, dtype: str
) -> None:
    mine = regard.load(packed(dtype))
    its = regard.load(run_path, engine="native", dtype=dtype)
    assert mine.engine == its.engine
    for options in ({"beam": 1}, {"beam": 4, "n_best": 3}):
        assert mine.translations(TEXT, **options) == its.translations(TEXT, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        ["model.tying=none"],
        ["model.tying=two_way", "model.norm_position=pre", "model.positions.kind=learned",
         "model.positions.max_positions=64", "model.feed_forward=swiglu"],
        ["model.positions.kind=relative", "model.norm.kind=rms", "model.attention_bias=false"],
    ],
    ids=str,
)  # fmt: skip
def test_models_of_other_kinds_are_packed_too(changes: list[str], tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", changes=changes)
    quantize(made, tmp_path / "out", "int8")
    its = regard.load(made, engine="native", dtype="int8").translations(TEXT)
    assert regard.load(tmp_path / "out").translations(TEXT) == its


def test_it_is_packed_alike_on_every_instruction_set(run_path: Path, tmp_path: Path) -> None:
    kernels = native.module().kernels
    before, files = kernels.active(), []
    try:
        for isa in kernels.isas():
            kernels.use(isa)
            quantize(run_path, tmp_path / isa, "int8")
            files.append((tmp_path / isa / PACKED).read_bytes())
    finally:
        kernels.use(before)
    assert all(each == files[0] for each in files)


def test_the_commands_use_it_and_what_needs_pytorchs_weights_refuses(
    packed: Packed, run_path: Path, command: Command, tmp_path: Path
) -> None:
    path = packed("int8")
    assert command("translate", path, stdin=b"light\n").code == 0
    assert command("translate", path, "--dtype=int8", "--engine=native", stdin=b"a\n").code == 0
    assert "packed " in command("info", path).out.decode()
    assert command("doctor", path).out.decode().count("good") == 4
    problem = "its weights are packed for the engine (model.packed), which is all that can use them"
    for arguments in (
        ["translate", path, "--engine=torch"],
        ["export", path, "--out", tmp_path / "x"],
    ):
        done = command(*arguments, stdin=b"light\n")
        assert (done.code, done.out) == (2, b"")
        assert problem in done.err
    done = command("translate", path, "--dtype=int4", stdin=b"light\n")
    assert "the run's weights are packed as int8" in done.err
    for arguments, said in (
        (["quantize", path, "--out", tmp_path / "y"], "packed as int8 already"),
        (["quantize", run_path, "--out", run_path], "this is the run itself"),
        (["quantize", run_path, "--out", path], "holds a run already"),
    ):
        done = command(*arguments)
        assert done.code == 2
        assert said in done.err
    out = tmp_path / "z"
    done = command("quantize", run_path, "--out", out)
    assert done.out.decode().startswith(f"{out}: int8, ")


def test_damage_is_refused_by_the_sum_in_the_manifest(run_path: Path, tmp_path: Path) -> None:
    quantize(run_path, tmp_path / "out", "int8")
    data = bytearray((tmp_path / "out" / PACKED).read_bytes())
    data[-5] ^= 1
    (tmp_path / "out" / PACKED).write_bytes(data)
    with pytest.raises(RunFolderError, match="SHA-256"):
        regard.load(tmp_path / "out")


def test_sections_that_are_not_the_recipes_are_refused(packed: Packed, tmp_path: Path) -> None:
    good = read_packed(packed("int8") / PACKED)
    name = "encoder_layers.0.feed_forward.input.weight:0"
    for changed, said in (
        ({each: data for each, data in good.sections.items() if each != name}, "no section"),
        ({**good.sections, name: good.sections[name][:-64]}, "bytes, not"),
        ({**good.sections, "strange": good.sections[name]}, "section strange is unknown"),
        ({}, "no section"),
    ):
        with pytest.raises(ModelError, match=said):
            engine_of(packed("int8"), good, changed)
    moved = np.empty(len(good.sections[name]) + 65, np.uint8)
    odd = moved[(-moved.ctypes.data) % 64 + 1 :][: len(good.sections[name])]
    with pytest.raises(ModelError, match="cache line"):
        engine_of(packed("int8"), good, {**good.sections, name: odd})


@pytest.mark.parametrize("dtype", DTYPES)
def test_whatever_the_weights_are_it_translates_or_says_that_it_cannot(
    packed: Packed, dtype: str, tmp_path: Path
) -> None:
    draw = random.Random(dtype)
    good = read_packed(packed(dtype) / PACKED)
    for number in range(40):
        bits = np.random.default_rng(number)
        sections = dict(good.sections)
        for name in draw.sample(sorted(sections), draw.randrange(1, 6)):
            data = bits.integers(0, 256, len(sections[name]), np.uint8)
            kept = bits.random(len(data)) < draw.choice((0.0, 0.9, 0.999))
            sections[name] = np.where(kept, sections[name], data)
        path = tmp_path / str(number)
        path.write_bytes(b"".join(map(bytes, packed_chunks(sections, dtype, {}))))
        hostile = read_packed(path)
        engine = engine_of(packed(dtype), hostile, hostile.sections)
        try:
            engine.translate([[5, 6, 2], [9, 2]], max_tokens=[6, 6], bos=1, eos=2, beam=3)
        except ModelError as error:
            assert "not a number" in str(error)


def engine_of(path: Path, packed: PackedWeights, sections: Any) -> Engine:
    recipe = load_recipe(path)
    assert isinstance(recipe, Recipe)
    return Engine(
        recipe.model,
        sections,
        source_vocabulary=280,
        target_vocabulary=280,
        dtype=packed.dtype,  # type: ignore[arg-type]
        threads=1,
    )


def test_what_is_no_dtype_is_refused(run_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r'expected one of "float32", .*, got "int2"'):
        quantize(run_path, tmp_path / "out", "int2")
    assert not (tmp_path / "out").exists()


def test_the_weights_are_used_where_the_file_is_mapped(packed: Packed) -> None:
    with RunFolder.open(packed("int8")) as run:
        sections = run.load_packed().sections
    assert all(not each.flags.owndata and not each.flags.writeable for each in sections.values())
