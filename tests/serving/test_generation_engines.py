"""Who goes on with texts: the engine and PyTorch draw the same, and say who it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from serving.command import Command
from serving.tiny_families import LEARNED, ROTARY, make_language_run

import regard
from regard.engine import native
from regard.engine.native import EngineError
from regard.errors import RegardError
from regard.serving.generator import Generator

PROMPTS = ["the light", "", "das Licht ist", "Küche", "the light in the kitchen"]
needs_engine = pytest.mark.skipif(not native.available(), reason="the engine is not built")


@pytest.fixture(scope="module", params=[LEARNED, ROTARY], ids=["learned", "rotary"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_language_run(
        tmp_path_factory.mktemp("runs") / "gpt",
        positions=request.param,
        changes=["model.num_kv_heads=1", "model.window=6"],
    )


def load(run: Path, **settings: Any) -> Generator:
    return regard.load_language_model(run, device="cpu", **settings)


@needs_engine
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "repetition_penalty": 1.7},
        {"samples": 5, "temperature": 1.3, "seed": 3},
        {"samples": 3, "top_k": 9, "seed": 4},
        {"samples": 3, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.2, "seed": 5},
        {"samples": 2, "stop": ("t", "e "), "max_tokens": 12},
    ],
    ids=str,
)
def test_the_same_texts_come_of_the_same_seed(run: Path, options: dict[str, Any]) -> None:
    engine, torch = load(run, threads=1), load(run, engine="torch")
    assert (engine.engine, torch.engine) == (f"native float32 on {native.isa()}", "torch")
    for ours, theirs in zip(
        engine.continuations(PROMPTS, **options),
        torch.continuations(PROMPTS, **options),
        strict=True,
    ):
        for mine, its in zip(ours, theirs, strict=True):
            assert (mine.text, mine.tokens, mine.finish) == (its.text, its.tokens, its.finish)
            assert mine.log_prob == pytest.approx(its.log_prob, abs=1e-4)


@needs_engine
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_a_prompt_goes_on_the_same_to_the_bit_alone_and_among_others(run: Path, dtype: str) -> None:
    generator, wide = (load(run, dtype=dtype, threads=count) for count in (1, 2))
    together = generator.continuations(PROMPTS, samples=3, seed=2)
    assert [generator.continuations([each], samples=3, seed=2)[0] for each in PROMPTS] == together
    assert wide.continuations(PROMPTS[::-1], samples=3, seed=2)[::-1] == together
    for prompt, [first, *_] in zip(PROMPTS, together, strict=True):
        assert "".join(generator.stream(prompt, seed=2)) == first.text


@needs_engine
def test_the_command_draws_the_same_with_either(run: Path, command: Command) -> None:
    arguments = ["generate", run, "--prompt=the", "--samples=3", "--seed=1", "--json"]
    ours, theirs = (
        [json.loads(line) for line in command(*arguments, f"--engine={name}").out.splitlines()]
        for name in ("native", "torch")
    )
    assert [each["text"] for each in ours] == [each["text"] for each in theirs]
    assert [each["log_prob"] for each in ours] != [each["log_prob"] for each in theirs]
    done = command(*arguments, "--dtype=int8")
    assert (done.code, done.err) == (0, "")


def test_what_is_no_engine_or_dtype_is_refused(run: Path) -> None:
    for settings, problem in (
        ({"engine": "gpu"}, 'engine: expected one of "auto", "native", "torch", got "gpu"'),
        ({"engine": "torch", "dtype": "int8"}, "dtype: int8 needs the engine"),
    ):
        with pytest.raises(RegardError) as caught:
            load(run, **settings)
        assert str(caught.value).startswith(problem)


def test_without_an_engine_pytorch_serves_or_refuses(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_load", lambda: "it was not built")
    assert load(run).engine == "torch"
    for settings in ({"engine": "native"}, {"dtype": "int8"}):
        with pytest.raises(EngineError, match="there is no engine: it was not built"):
            load(run, **settings)


@needs_engine
def test_a_model_that_it_does_not_support_is_pytorchs_and_it_is_said(
    tmp_path: Path, command: Command
) -> None:
    run = make_language_run(
        tmp_path / "gaps",
        positions=ROTARY,
        changes=["model.decoder.mixer={kind='window', dilation=2}"],
    )
    reason = "the engine does not support model.decoder.mixer.dilation = 2"
    assert load(run).engine == "torch"
    for settings in ({"engine": "native"}, {"dtype": "int8"}):
        with pytest.raises(EngineError) as caught:
            load(run, **settings)
        assert str(caught.value).startswith(f"{run}: {reason}\n")
    done = command("generate", run, "--prompt=the")
    assert (done.code, done.err) == (0, f"note: PyTorch reads; {reason}\n")
    assert command("generate", run, "--prompt=the", "--engine=torch").err == ""
