"""Who encodes texts: the engine and PyTorch find the same, and it is said who it was."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving.command import Command
from serving.tiny_families import make_encoder_run
from serving.tiny_runs import TEXT

import regard
from regard.engine import native
from regard.engine.native import EngineError
from regard.errors import RegardError
from regard.serving.encoder import Encoder

LINES = [*TEXT, "", "x"]
needs_engine = pytest.mark.skipif(not native.available(), reason="the engine is not built")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = ["model.pooler=true", "model.token_types=2", "data.max_tokens=16"]
    return make_encoder_run(tmp_path_factory.mktemp("runs") / "bert", changes=changes)


def load(run: Path, **settings: Any) -> Encoder:
    return regard.load_encoder(run, device="cpu", **settings)


@needs_engine
def test_vectors_labels_and_fillings_are_those_of_pytorch(run: Path) -> None:
    engine, torch = load(run, threads=1), load(run, engine="torch")
    assert (engine.engine, torch.engine) == (f"native float32 on {native.isa()}", "torch")
    for settings in ({}, {"pooling": "cls"}, {"pooling": "mean", "normalize": False}):
        ours, theirs = (one.embed(LINES, **settings) for one in (engine, torch))  # type: ignore[arg-type]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
        assert ours.dtype == np.float32
    for mine, its in zip(engine.classify(LINES), torch.classify(LINES), strict=True):
        assert mine.name == its.name
        assert mine.probabilities == pytest.approx(dict(its.probabilities), abs=1e-5)
    text = "the [MASK] in the [MASK] is"
    for found, wanted in zip(engine.fill(text), torch.fill(text), strict=True):
        assert [each.token for each in found] == [each.token for each in wanted]
        assert [each.probability for each in found] == pytest.approx(
            [each.probability for each in wanted], abs=1e-5
        )
    assert engine.embed([]).shape == torch.embed([]).shape
    assert engine.classify([]) == []


@needs_engine
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_a_text_has_the_same_bits_alone_and_among_others(run: Path, dtype: str) -> None:
    encoder, wide = (load(run, dtype=dtype, threads=count) for count in (1, 2))
    together = encoder.embed(LINES)
    assert [encoder.embed(line).tobytes() for line in LINES] == [row.tobytes() for row in together]
    assert wide.embed(LINES[::-1])[::-1].tobytes() == together.tobytes()
    assert [encoder.classify(line) for line in LINES] == wide.classify(LINES)


@needs_engine
def test_the_commands_take_either(run: Path, command: Command, tmp_path: Path) -> None:
    labels = tmp_path / "labels.tsv"
    labels.write_text("place\tthe kitchen\nnumber\tone\n")
    text = "\n".join(LINES).encode() + b"\n"
    found = {}
    for name in ("native", "torch"):
        out = tmp_path / f"{name}.npy"
        engine = f"--engine={name}"
        assert command("embed", run, "--out", out, engine, stdin=text).code == 0
        found[name] = (
            np.load(out),
            command("classify", run, engine, "--json", stdin=text).out,
            command("classify", run, engine, "--labels", labels).out,
            command("fill", run, "the [MASK] is", engine).out,
        )
    ours, theirs = found["native"], found["torch"]
    np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=1e-5)
    assert ours[1] != theirs[1]
    assert [json.loads(line)["label"] for line in ours[1].splitlines()] == [
        json.loads(line)["label"] for line in theirs[1].splitlines()
    ]
    assert ours[2:] == theirs[2:]
    assert command("classify", run, "--dtype=int8", stdin=text).code == 0


@needs_engine
def test_a_model_that_it_does_not_support_is_pytorchs_and_it_is_said(
    tmp_path: Path, command: Command
) -> None:
    changes = ["model.encoder.mixer={kind='window', window=4}"]
    run = make_encoder_run(tmp_path / "window", changes=changes)
    reason = 'the engine does not support model.encoder.mixer.kind = "window"'
    assert load(run).engine == "torch"
    for settings in ({"engine": "native"}, {"dtype": "int8"}):
        with pytest.raises(EngineError) as caught:
            load(run, **settings)
        assert str(caught.value).startswith(f"{run}: {reason}\n")
    done = command("classify", run, stdin=b"x\n")
    assert (done.code, done.err) == (0, f"note: PyTorch computes; {reason}\n")
    assert command("classify", run, "--engine=torch", stdin=b"x\n").err == ""


def test_without_an_engine_pytorch_serves_or_refuses(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_load", lambda: "it was not built")
    assert load(run).engine == "torch"
    with pytest.raises(EngineError, match="there is no engine: it was not built"):
        load(run, engine="native")
    with pytest.raises(RegardError, match="int8 needs the engine"):
        load(run, engine="torch", dtype="int8")
