"""Whether the extension is there, what runs it, and what is said where it is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.engine import native
from regard.engine.engine import default_threads
from regard.engine.native import EngineError


@pytest.fixture
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_load", lambda: "it could not be built: no compiler")


@pytest.mark.skipif("CI" not in os.environ, reason="a checkout need not have built it")
def test_an_install_has_built_it() -> None:
    assert native.absence() == ""


def test_there_is_an_engine_or_a_reason() -> None:
    assert native.available() == (native.absence() == "")


@pytest.mark.usefixtures("no_extension")
def test_who_asks_for_what_is_not_there_is_told_why() -> None:
    assert not native.available()
    for ask in (native.isa, native.module):
        with pytest.raises(EngineError) as caught:
            ask()
        assert str(caught.value) == "there is no engine: it could not be built: no compiler"


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_neither_the_engine_nor_its_checks_import_torch() -> None:
    code = (
        "import sys, regard.engine.engine as e; e.native.absence(); print('torch' in sys.modules)"
    )
    assert run(code) == "False"


def test_the_instructions_can_be_chosen_from_outside() -> None:
    pytest.importorskip("regard.engine._native", reason="the engine is not built")
    code = """
from regard.engine import native
try:
    print(native.isa())
except native.EngineError as error:
    print(error)
"""
    assert run(code, REGARD_ISA="portable") == "portable"
    problem, hint = run(code, REGARD_ISA="quantum").splitlines()
    assert problem.startswith("REGARD_ISA: this processor has portable")
    assert problem.endswith(', not "quantum"')
    assert hint == "  Unset it, and the best of these is taken; or set it to one of them."


def test_as_many_threads_as_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard import machine

    monkeypatch.setattr(machine, "usable_cores", lambda: 8)
    for limit, threads in ((None, 8), (2.0, 2), (0.5, 1), (64.0, 8)):
        monkeypatch.setattr(machine, "container_cores", lambda limit=limit: limit)
        assert default_threads() == threads


def test_a_file_says_why_it_was_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_ABSENT", tmp_path / "absent.txt")
    monkeypatch.setitem(sys.modules, "regard.engine._native", None)
    native._load.cache_clear()
    try:
        assert native.absence() == "it was not built"
        native._load.cache_clear()
        (tmp_path / "absent.txt").write_text("`g++` is missing\n", encoding="utf-8")
        assert native.absence() == "it could not be built: `g++` is missing"
    finally:
        native._load.cache_clear()
