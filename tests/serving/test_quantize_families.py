"""Packed runs of every family: the very answers of packing at load, and no belief in a file."""

import gc
import json
import os
import random
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving.command import Command
from serving.tiny_families import LEARNED, ROTARY, make_encoder_run, make_language_run
from serving.tiny_runs import TEXT, make_run

import regard
from regard.engine import native
from regard.engine.engine import Engine
from regard.engine.language_model import LanguageModelEngine
from regard.engine.text_encoder import TextEncoderEngine
from regard.errors import ModelError, RegardError, RunFolderError
from regard.recipes.load import load_recipe
from regard.recipes.recipe import DecoderRecipe, EncoderRecipe, Recipe
from regard.serving.quantize import quantize
from regard.serving.readers import EngineReader
from regard.weights.layout import PACKED
from regard.weights.packed import PackedWeights, packed_chunks, read_packed
from regard.weights.run_folder import RunFolder

pytestmark = pytest.mark.skipif(not native.available(), reason="the engine is not built")

DTYPES = ["float32", "bfloat16", "int8", "int4"]
FAMILIES = ["seq2seq", "decoder", "encoder"]
PROMPTS = ["the light", "", "Küche"]
LINES = [*TEXT, "", "x"]
VOCABULARY = 290


def make(family: str, path: Path, *changes: str, **kinds: str) -> Path:
    match family:
        case "decoder":
            return make_language_run(path, **kinds, changes=changes)
        case "encoder":
            chosen = changes or ("model.pooler=true", "model.token_types=2")
            return make_encoder_run(path, **kinds, changes=chosen)
        case _:
            return make_run(path, changes=changes)


def load(family: str, path: Path, **settings: Any) -> Any:
    match family:
        case "decoder":
            return regard.load_language_model(path, **settings)
        case "encoder":
            return regard.load_encoder(path, **settings)
        case _:
            return regard.load(path, **settings)


def answers(family: str, loaded: Any) -> Any:
    """All that a run says, down to the bits."""
    match family:
        case "decoder":
            drawn = loaded.continuations(PROMPTS, samples=2, seed=3)
            return drawn, loaded.generate(PROMPTS, temperature=0.0)
        case "encoder":
            vectors = [loaded.embed(LINES, pooling=each).tobytes() for each in ("mean", "cls")]
            return vectors, loaded.classify(LINES), loaded.fill("the [MASK] in the [MASK]")
        case _:
            return loaded.translations(TEXT)


def engine_of(path: Path, packed: PackedWeights, sections: Mapping[str, Any]) -> Any:
    """The engine of a run's recipe with these sections for its weights."""
    settings: dict[str, Any] = {"dtype": packed.dtype, "threads": 1}
    recipe = load_recipe(path)
    match recipe:
        case DecoderRecipe():
            return LanguageModelEngine(recipe.model, sections, vocabulary=VOCABULARY, **settings)
        case EncoderRecipe():
            return TextEncoderEngine(
                recipe.model, sections, vocabulary=VOCABULARY, classes=3, **settings
            )
        case Recipe():
            sizes = {"source_vocabulary": 280, "target_vocabulary": 280}
            return Engine(recipe.model, sections, **sizes, **settings)


def use(engine: Any) -> None:
    """Compute with whatever the weights are, up to the end."""
    if isinstance(engine, LanguageModelEngine):
        texts, logits = engine.read([[5, 6], [7] * 20])
        assert logits.shape == (2, VOCABULARY)
        texts.select([0, 0, 1])
        texts.advance([0, 1, 2], [[3], [4], [5]])
    elif isinstance(engine, TextEncoderEngine):
        for pooling in ("mean", "cls"):
            assert len(engine.pool([[5, 6, 7], [9]], pooling)) == 2  # type: ignore[arg-type]
        assert engine.classify([[5, 6, 7], [9]]).shape == (2, 3)
        assert engine.predict([5, 6, 7], [1, 2]).shape == (2, VOCABULARY)
    else:
        try:
            engine.translate([[5, 6, 2], [9, 2]], max_tokens=[6, 6], bos=1, eos=2, beam=3)
        except ModelError as error:
            assert "not a number" in str(error)


Packed = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("families")
    return {family: make(family, folder / family) for family in FAMILIES}


@pytest.fixture(scope="module")
def packed(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The run of a family, packed in a dtype."""
    folder = tmp_path_factory.mktemp("packed")

    def path(family: str, dtype: str) -> Path:
        made = folder / f"{family}-{dtype}"
        if not made.exists():
            quantize(runs[family], made, dtype)
        return made

    return path


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_run_gives_the_very_answers_of_one_packed_when_loaded(
    runs: dict[str, Path], packed: Packed, family: str, dtype: str
) -> None:
    mine = load(family, packed(family, dtype))
    its = load(family, runs[family], engine="native", dtype=dtype)
    assert mine.engine == its.engine
    assert answers(family, mine) == answers(family, its)


RELATIVE = 'model.positions={kind="relative"}'


@pytest.mark.parametrize(
    ("family", "positions", "changes"),
    [
        ("decoder", ROTARY, ["model.tied=false", "model.norm.kind=rms", "model.num_kv_heads=1",
                             "model.feed_forward=swiglu"]),
        ("decoder", LEARNED, ["model.decoder.mixer.kind=ssru", "model.output_bias=true",
                              "model.embedding_norm=true"]),
        ("decoder", RELATIVE, ["model.window=5", "model.norm_position=post"]),
        ("encoder", RELATIVE, ["model.norm_position=pre"]),
        ("encoder", ROTARY, ["model.prediction_head=false", "model.embedding_norm=false"]),
    ],
    ids=str,
)  # fmt: skip
def test_models_of_other_kinds_are_packed_too(
    family: str, positions: str, changes: list[str], tmp_path: Path
) -> None:
    made = make(family, tmp_path / "run", *changes, positions=positions)
    quantize(made, tmp_path / "out", "int8")
    mine, its = (
        load(family, tmp_path / "out"),
        load(family, made, engine="native", dtype="int8"),
    )
    if family == "encoder":
        assert mine.embed(LINES).tobytes() == its.embed(LINES).tobytes()
        assert mine.classify(LINES) == its.classify(LINES)
    else:
        assert answers(family, mine) == answers(family, its)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_packed_alike_on_every_instruction_set_and_used_where_it_is_mapped(
    family: str, runs: dict[str, Path], packed: Packed, tmp_path: Path
) -> None:
    kernels = native.module().kernels
    before = kernels.active()
    wanted = (packed(family, "int8") / PACKED).read_bytes()
    try:
        for isa in kernels.isas():
            kernels.use(isa)
            quantize(runs[family], tmp_path / isa, "int8")
            assert (tmp_path / isa / PACKED).read_bytes() == wanted
    finally:
        kernels.use(before)
    sections = RunFolder.open(packed(family, "int8")).load_packed().sections
    assert all(not each.flags.owndata and not each.flags.writeable for each in sections.values())


def test_texts_keep_the_file_mapped_that_they_are_read_with(packed: Packed) -> None:
    path = packed("decoder", "int8")

    def read() -> Any:
        held = read_packed(path / PACKED)
        return EngineReader(engine_of(path, held, held.sections)).read([[5, 6]])[0]

    reading = read()
    gc.collect()
    assert np.isfinite(reading._texts.advance([0], [[7]])).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_truncation_and_every_changed_byte_of_the_header_is_refused(
    family: str, packed: Packed, tmp_path: Path
) -> None:
    data, path = (packed(family, "int8") / PACKED).read_bytes(), tmp_path / "a"
    (length,) = struct.unpack_from("<Q", data, 16)
    table = json.loads(data[64 : 64 + length])["sections"]
    edges = {edge + by for start, size, _ in table.values() for edge in (start, start + size)
             for by in (-1, 0, 1)}  # fmt: skip
    cuts = {*range(64 + length), *edges, *range(64 + length, len(data), 61)} - {len(data)}
    path.write_bytes(data)
    for cut in sorted((cut for cut in cuts if cut < len(data)), reverse=True):
        os.truncate(path, cut)
        with pytest.raises(RunFolderError, match="not a whole file of packed weights"):
            read_packed(path)
    path.write_bytes(data)
    with path.open("r+b", buffering=0) as file:
        for place in [*range(32), *range(64, 64 + length)]:
            file.seek(place)
            file.write(bytes([data[place] ^ 1 << place % 8]))
            with pytest.raises(RunFolderError, match="not a whole file of packed weights"):
                read_packed(path)
            file.seek(place)
            file.write(data[place : place + 1])
    assert not read_packed(path).problem()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_header_that_was_changed_and_signed_is_refused_or_harmless(
    family: str, packed: Packed, tmp_path: Path
) -> None:
    run, path, draw = packed(family, "int8"), tmp_path / "a", random.Random(family)
    data = (run / PACKED).read_bytes()
    (length,) = struct.unpack_from("<Q", data, 16)
    used = refused = 0
    for number in range(400):
        header = bytearray(data[64 : 64 + length])
        # Most changes make no JSON; a digit for a digit does.
        digits = [place for place, byte in enumerate(header) if byte in b"0123456789"]
        for _ in range(draw.randrange(1, 4)):
            if number % 4:
                header[draw.choice(digits)] = draw.choice(b"0123456789")
            else:
                header[draw.randrange(length)] = draw.choice(b'0123456789-[]{},:"e. \x00\xff')
        signed = struct.pack("<I", zlib.crc32(header))
        path.write_bytes(data[:12] + signed + data[16:64] + bytes(header) + data[64 + length :])
        try:
            hostile = read_packed(path)
            if hostile.dtype not in DTYPES:  # `regard.serving.choosing` refuses it by its name
                raise ModelError(hostile.dtype)
            engine = engine_of(run, hostile, hostile.sections)
        except (RunFolderError, ModelError):
            refused += 1
            continue
        used += 1
        use(engine)
    assert refused > 100 < used


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_whatever_the_weights_are_it_answers_or_says_that_it_cannot(
    family: str, packed: Packed, dtype: str
) -> None:
    run, draw = packed(family, dtype), random.Random(dtype)
    good = read_packed(run / PACKED)
    for number in range(40):
        bits = np.random.default_rng(number)
        sections = {}
        for name, data in good.sections.items():
            where = np.empty(len(data) + 64, np.uint8)
            sections[name] = where[-where.ctypes.data % 64 :][: len(data)]
            sections[name][:] = data
        for name in draw.sample(sorted(sections), draw.randrange(1, 6)):
            noise = bits.integers(0, 256, len(sections[name]), np.uint8)
            kept = bits.random(len(noise)) < draw.choice((0.0, 0.9, 0.999))
            sections[name][:] = np.where(kept, sections[name], noise)
        use(engine_of(run, good, sections))


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_sections_that_are_not_the_recipes_are_refused(family: str, packed: Packed) -> None:
    run = packed(family, "int8")
    good = read_packed(run / PACKED)
    name = "layers.0.feed_forward.input.weight:0"
    for changed, said in (
        ({each: data for each, data in good.sections.items() if each != name}, "no section"),
        ({**good.sections, name: good.sections[name][:-64]}, "bytes, not"),
        ({**good.sections, "strange": good.sections[name]}, "section strange is unknown"),
        ({}, "no section"),
    ):
        with pytest.raises(ModelError, match=said):
            engine_of(run, good, changed)


def test_nothing_is_computed_with_the_packed_file_of_another_family(
    packed: Packed, tmp_path: Path
) -> None:
    for number, (family, other) in enumerate(
        (family, other) for family in FAMILIES for other in FAMILIES if family != other
    ):
        quantized = packed(family, "int8")
        theirs = read_packed(packed(other, "int8") / PACKED)
        out = tmp_path / str(number)
        source = RunFolder.open(quantized)
        for notes, said in (
            (theirs.notes, f'its weights were packed for a run of family = "{other}"'),
            ({}, "its packed weights do not fit its recipe: there is no section"),
        ):
            with RunFolder.create(out) as made:
                made.write_recipe(source.recipe_text())
                made.write_tokenizers(source.tokenizer_files().source)
                made.replace({PACKED: packed_chunks(theirs.sections, "int8", notes)})
            with pytest.raises(RunFolderError) as caught:
                load(family, out)
            assert said in str(caught.value)
            assert "Make " in caught.value.hint
            assert "regard quantize" in caught.value.hint
            made.path.rename(tmp_path / f"{number}-{len(notes)}")


def test_the_commands_use_it_or_say_what_can(
    packed: Packed, runs: dict[str, Path], command: Command, tmp_path: Path
) -> None:
    translator, gpt, bert = (packed(family, "int8") for family in FAMILIES)
    vectors = tmp_path / "a.npy"
    labels = tmp_path / "labels.tsv"
    labels.write_text("place\tthe kitchen\nnumber\tone\n")
    for arguments in (
        ["generate", gpt, "--prompt=the"],
        ["generate", gpt, "--prompt=the", "--dtype=int8", "--engine=native", "--json"],
        ["embed", bert, "--out", vectors],
        ["classify", bert],
        ["classify", bert, "--labels", labels],
        ["fill", bert, "the [MASK]", "--json"],
    ):
        done = command(*arguments, stdin=b"light\nthe light\n")
        assert (done.code, "note" in done.err) == (0, False), done.err
    assert np.load(vectors).shape == (2, 16)
    for path in (gpt, bert):
        assert "packed " in command("info", path).out.decode()
        assert set(json.loads(command("doctor", path, "--json").out).values()) == {None}
    for arguments, family in (
        (["translate", gpt], "decoder"),
        (["score", bert, "--source", labels, "--target", labels], "encoder"),
        (["generate", bert, "--prompt=a"], "encoder"),
        (["generate", translator, "--prompt=a"], "seq2seq"),
        (["embed", gpt, "--out", vectors], "decoder"),
        (["classify", translator], "seq2seq"),
        (["fill", gpt, "a [MASK]"], "decoder"),
    ):
        done = command(*arguments, stdin=b"light\n")
        assert (done.code, done.out) == (2, b"")
        assert f'this is of the family "{family}", and one of ' in done.err


def test_what_it_cannot_do_says_to_use_the_run_that_it_was_made_of(
    packed: Packed, runs: dict[str, Path], command: Command, tmp_path: Path
) -> None:
    translator, gpt, bert = (packed(family, "int8") for family in FAMILIES)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("light\tLicht\n" * 4)
    out = tmp_path / "out"
    for arguments in (
        ["translate", translator, "--engine=torch"],
        ["translate", translator, "--dtype=int4"],
        ["translate", translator, "--ensemble", runs["seq2seq"]],
        ["translate", runs["seq2seq"], "--ensemble", translator],
        ["generate", gpt, "--prompt=the", "--engine=torch"],
        ["generate", gpt, "--prompt=the", "--dtype=int4"],
        ["classify", bert, "--engine=torch"],
        ["classify", bert, "--dtype=float32"],
        ["train", translator, "--resume"],
        ["train", gpt, "--resume"],
        ["train", runs["seq2seq"], "--init", translator, "--tsv", pairs, "--out", out],
        ["finetune", bert, "--labels", pairs, "--out", out],
        ["average", translator],
        ["average", gpt, "--last", "2"],
        ["average", bert, "--undo"],
        ["export", bert, "--out", out],
        ["quantize", gpt, "--out", out],
    ):
        done = command(*arguments, stdin=b"light\n")
        assert (done.code, done.out) == (2, b""), arguments
        assert "packed" in done.err
        assert "\n  Use the run that it was made of" in done.err, done.err
        assert "--init" not in done.err
        assert not out.exists(), arguments


def test_a_packed_run_that_is_no_classifier_does_not_advise_to_finetune_itself(
    tmp_path: Path,
) -> None:
    quantize(make_encoder_run(tmp_path / "run", labels=()), tmp_path / "out", "int8")
    with pytest.raises(ModelError) as caught:
        regard.load_encoder(tmp_path / "out").classify("a")
    assert "regard quantize" in caught.value.hint
    assert "finetune" not in caught.value.hint


def test_without_an_engine_a_packed_run_does_not_advise_pytorch(
    packed: Packed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_load", lambda: "it was not built")
    for family in FAMILIES:
        with pytest.raises(RegardError) as caught:
            load(family, packed(family, "int8"))
        assert "there is no engine: it was not built" in str(caught.value)
        assert caught.value.hint == "Use the run that it was made of with regard quantize."


@pytest.mark.parametrize("family", FAMILIES)
def test_damage_is_refused_by_the_sum_in_the_manifest_and_found_by_the_doctor(
    family: str, runs: dict[str, Path], command: Command, tmp_path: Path
) -> None:
    quantize(runs[family], tmp_path / "out", "int8")
    data = bytearray((tmp_path / "out" / PACKED).read_bytes())
    data[-5] ^= 1
    (tmp_path / "out" / PACKED).write_bytes(data)
    with pytest.raises(RunFolderError, match="SHA-256"):
        load(family, tmp_path / "out")
    assert command("doctor", tmp_path / "out").code == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_section_that_is_not_as_it_was_written_is_found_by_the_doctor(
    family: str, packed: Packed, command: Command, tmp_path: Path
) -> None:
    source, good = (
        RunFolder.open(packed(family, "int8")),
        read_packed(packed(family, "int8") / PACKED),
    )
    name = next(name for name in good.sections if name.endswith("feed_forward.input.weight:0"))
    chunks = bytearray(b"".join(map(bytes, packed_chunks(good.sections, "int8", good.notes))))
    place = bytes(chunks).index(bytes(good.sections[name]))
    chunks[place] ^= 1
    with RunFolder.create(tmp_path / "out") as made:
        made.write_recipe(source.recipe_text())
        files = source.tokenizer_files()
        made.write_tokenizers(files.source, None if files.joint else files.target)
        made.replace({PACKED: [bytes(chunks)]})
    done = command("doctor", tmp_path / "out")
    assert done.code == 2
    assert f"section {name} is not as it was written (CRC-32)" in done.out.decode()
