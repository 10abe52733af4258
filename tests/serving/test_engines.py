"""Who translates: the engine where it can, PyTorch where it can't, and what is said of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving.command import Command
from serving.tiny_runs import TEXT, make_run

import regard
from regard.engine import native
from regard.engine.native import EngineError
from regard.errors import RegardError

HINT = "\n  Leave the engine to be chosen, or use --engine torch."
needs_engine = pytest.mark.skipif(not native.available(), reason="the engine is not built")


@pytest.fixture(scope="session")
def window_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "window"
    return make_run(path, changes=["model.encoder.mixer={kind='window', window=4}"])


@needs_engine
def test_the_engine_translates_where_it_can(run_path: Path) -> None:
    by_itself = regard.load(run_path, device="cpu", threads=1)
    assert by_itself.engine == f"native float32 on {native.isa()}"
    by_torch = regard.load(run_path, engine="torch", device="cpu")
    assert by_torch.engine == "torch"
    for options in ({"beam": 1}, {"beam": 4, "n_best": 3}, {"min_tokens": 2}):
        for mine, its in zip(
            by_itself.translations(TEXT, **options),  # type: ignore[arg-type]
            by_torch.translations(TEXT, **options),  # type: ignore[arg-type]
            strict=True,
        ):
            assert [each.text for each in mine.hypotheses] == [each.text for each in its.hypotheses]
            assert [each.score for each in mine.hypotheses] == pytest.approx(
                [each.score for each in its.hypotheses], abs=1e-4
            )
    ours, theirs = (
        [each.text for each in one.translations(TEXT, prefixes=["das", "", "x", "das Licht"])]
        for one in (by_itself, by_torch)
    )
    assert ours == theirs
    assert ours[3].startswith("das Licht")


@needs_engine
@pytest.mark.parametrize(
    "options",
    [{}, {"n_best": 3, "temperature": 0.7}, {"top_k": 5, "seed": 7}, {"top_p": 0.8, "min_p": 0.05}],
    ids=str,
)
def test_the_engine_draws_the_samples_of_pytorch(run_path: Path, options: dict[str, Any]) -> None:
    ours, theirs = (
        regard.load(run_path, engine=name, device="cpu").translations(
            TEXT, prefixes=["", "das", *[""] * (len(TEXT) - 2)], method="sample", **options
        )
        for name in ("native", "torch")
    )
    for mine, its in zip(ours, theirs, strict=True):
        assert [each.text for each in mine.hypotheses] == [each.text for each in its.hypotheses]
        assert [each.score for each in mine.hypotheses] == pytest.approx(
            [each.score for each in its.hypotheses], abs=1e-4
        )


@needs_engine
def test_a_model_that_it_does_not_support_is_pytorchs(window_path: Path, run_path: Path) -> None:
    assert regard.load(window_path, device="cpu").engine == "torch"
    assert regard.load([run_path, run_path], device="cpu").engine == "torch"
    for path, named in (
        (window_path, 'model.encoder.mixer.kind = "window"'),
        ([run_path, run_path], "an ensemble"),
    ):
        for settings in ({"engine": "native"}, {"dtype": "bfloat16"}):
            with pytest.raises(EngineError) as caught:
                regard.load(path, **settings)
            where = path if isinstance(path, Path) else path[0]
            assert str(caught.value) == f"{where}: the engine does not support {named}{HINT}"


def test_what_is_no_engine_or_dtype_is_refused(run_path: Path) -> None:
    for settings, problem in (
        ({"engine": "gpu"}, 'engine: expected one of "auto", "native", "torch", got "gpu"'),
        (
            {"dtype": "int2"},
            'dtype: expected one of "float32", "bfloat16", "int8", "int4", got "int2"',
        ),
        (
            {"engine": "torch", "dtype": "int8"},
            "dtype: int8 needs the engine, and PyTorch was asked for\n"
            "  Leave out one of the two: PyTorch computes with float32.",
        ),
    ):
        with pytest.raises(RegardError) as caught:
            regard.load(run_path, **settings)
        assert str(caught.value) == problem


@pytest.fixture
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_load", lambda: "it was not built")


@pytest.mark.usefixtures("no_extension")
def test_without_an_engine_pytorch_serves_and_nothing_is_said(
    run_path: Path, command: Command
) -> None:
    assert regard.load(run_path, device="cpu").engine == "torch"
    done = command("translate", run_path, stdin=b"\n")
    assert (done.code, done.out, done.err) == (0, b"\n", "")
    for arguments in (["--engine=native"], ["--dtype=int8"]):
        done = command("translate", run_path, *arguments, stdin=b"light\n")
        assert (done.code, done.out) == (2, b"")
        assert done.err == ("error: there is no engine: it was not built\n  Use --engine torch.\n")
    done = command("doctor", "--quick")
    assert "\nengine  " in done.out.decode()
    assert "none: it was not built\n" in done.out.decode()


@needs_engine
def test_the_command_says_when_pytorch_has_to_serve(
    run_path: Path, window_path: Path, command: Command
) -> None:
    note = "note: PyTorch translates; the engine does not support "
    for arguments, named in (
        ([window_path], 'model.encoder.mixer.kind = "window"'),
        ([run_path, "--ensemble", run_path], "an ensemble"),
    ):
        done = command("translate", *arguments, stdin=b"\n")
        assert (done.code, done.out, done.err) == (0, b"\n", f"{note}{named}\n")
        done = command("translate", *arguments, "--engine=torch", stdin=b"\n")
        assert (done.code, done.out, done.err) == (0, b"\n", "")
    for dtype in ("float32", "bfloat16", "int8"):
        arguments = [run_path, "--engine=native", f"--dtype={dtype}", "--threads=1"]
        done = command("translate", *arguments, stdin=b"light\n\n")
        assert (done.code, len(done.lines), done.lines[1]) == (0, 2, "")
        assert "note" not in done.err


@needs_engine
def test_doctor_shows_what_the_engine_runs_on(command: Command) -> None:
    assert f"  {native.isa()}\n" in command("doctor", "--quick").out.decode()
    findings = json.loads(command("doctor", "--quick", "--json").out)
    assert findings["engine"] == {"isa": native.isa(), "problem": ""}


@needs_engine
def test_the_engine_scores_and_judges_as_pytorch_does(run_path: Path) -> None:
    engine, by_torch = (
        regard.load(run_path, engine=name, device="cpu") for name in ("native", "torch")
    )
    pairs = [*zip(TEXT, TEXT[::-1], strict=True), ("", ""), ("light", "")]
    ours, theirs = (one.score(pairs) for one in (engine, by_torch))
    assert [each.tokens for each in ours] == [each.tokens for each in theirs]
    assert [each.log_prob for each in ours] == pytest.approx(
        [each.log_prob for each in theirs], abs=1e-4
    )
    assert [each.log_prob for each in ours] != [each.log_prob for each in theirs]
    mine, its = (one.judge(pairs) for one in (engine, by_torch))
    assert [each.text for each in mine.translations] == [each.text for each in its.translations]
    assert (mine.bleu, mine.chrf, mine.tokens) == (its.bleu, its.chrf, its.tokens)
    assert mine.log_prob == pytest.approx(its.log_prob, abs=1e-3)
    scores = [[each.score for each in one.translations] for one in (mine, its)]
    assert scores[0] != scores[1]


@needs_engine
@pytest.mark.parametrize("options", [{"beam": 1}, {"n_best": 3, "coverage": 0.3}], ids=str)
def test_the_engine_looks_where_pytorch_looks(run_path: Path, options: dict[str, Any]) -> None:
    ours, theirs = (
        regard.load(run_path, engine=name, device="cpu").translations(
            [*TEXT, " ".join(TEXT * 4)], alignments=True, attention=True, **options
        )
        for name in ("native", "torch")
    )
    for mine, its in zip(ours, theirs, strict=True):
        assert [each.text for each in mine.hypotheses] == [each.text for each in its.hypotheses]
        assert [each.score for each in mine.hypotheses] == pytest.approx(
            [each.score for each in its.hypotheses], abs=1e-4
        )
        assert mine.pharaoh == its.pharaoh
        assert (mine.source_tokens, mine.target_tokens) == (its.source_tokens, its.target_tokens)
        assert (mine.attention_ts is None) == (its.attention_ts is None)
        if mine.attention_ts is not None:
            np.testing.assert_allclose(mine.attention_ts, its.attention_ts, atol=1e-5)
    assert any(mine.pharaoh for mine in ours)


@needs_engine
def test_the_command_writes_the_alignments_of_pytorch(
    run_path: Path, command: Command, tmp_path: Path
) -> None:
    text = "".join(f"{line}\n" for line in TEXT).encode()
    written = []
    for name in ("native", "torch"):
        path = tmp_path / name
        options = ["--alignments", path, f"--engine={name}", "--set=decoding.coverage=0.1"]
        done = command("translate", run_path, *options, stdin=text)
        assert (done.code, "note" in done.err) == (0, False)
        written.append((done.out, path.read_bytes()))
    assert written[0] == written[1]
    assert written[0][1].strip()


@needs_engine
def test_score_and_evaluate_say_when_pytorch_has_to_serve(
    run_path: Path, window_path: Path, command: Command, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("light\n")
    reason = 'the engine does not support model.encoder.mixer.kind = "window"\n'
    for name, other, does in (
        ("score", "target", "scores"),
        ("evaluate", "reference", "translates"),
    ):
        files = [f"--source={text}", f"--{other}={text}"]
        assert command(name, run_path, *files, "--engine=native", "--dtype=int8").code == 0
        assert "note" not in command(name, run_path, *files).err
        assert "note" not in command(name, window_path, *files, "--engine=torch").err
        done = command(name, window_path, *files)
        assert done.code == 0
        assert done.err.startswith(f"note: PyTorch {does}; {reason}")
        done = command(name, window_path, *files, "--dtype=int8")
        assert (done.code, done.out) == (2, b"")
        assert reason.strip() in done.err


@needs_engine
def test_score_prints_what_the_dtype_makes_of_it(
    run_path: Path, command: Command, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("light\nlight and water\n")
    said = {
        each: command("score", run_path, f"--source={text}", f"--target={text}", *each).lines
        for each in (("--engine=torch",), ("--engine=native",), ("--dtype=int8",))
    }
    by_torch, native_, small = (
        [float(line.split("\t")[0]) for line in each] for each in said.values()
    )
    assert native_ == pytest.approx(by_torch, abs=1e-4)
    assert small == pytest.approx(by_torch, rel=0.2)
    assert small != native_
