import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import doctor
from regard.kernels import native, products


def test_the_threads_are_those_of_the_library_that_pytorch_brought() -> None:
    brought = list((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    start, threads = native.team()
    assert bool(start) == bool(brought) and threads == torch.get_num_threads()


def test_without_the_extension_the_doctor_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_load", lambda: "they were not built")
    assert native.absence() == "they were not built"
    assert not native.wanted_for(torch.zeros(1))
    findings = doctor.examine(measure=False)
    assert findings["kernels"] == "none: they were not built"
    assert "training kernels  none: they were not built" in doctor.format_findings(findings)


def test_an_extension_of_other_sources_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.absence():
        pytest.skip("no native kernels")
    monkeypatch.setattr(native, "INTERFACE", native.INTERFACE + 1)
    assert native._load.__wrapped__() == (
        "they were built from other sources; build the package anew"
    )


def test_the_doctor_says_what_they_run_on(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.examine(measure=False)["kernels"] == isa
    assert products.summary() in {"oneDNN", "PyTorch's choice"}
    monkeypatch.setenv("REGARD_KERNELS", "off")
    assert doctor.examine(measure=False)["kernels"] == "off by REGARD_KERNELS"
    assert products.summary() == "PyTorch's choice"


def test_instructions_that_are_not_there_are_named() -> None:
    if native.absence():
        pytest.skip("no native kernels")
    code = "from regard.kernels import native; print(native.summary())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "REGARD_ISA": "mmx"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("none: REGARD_ISA: this processor has portable")
