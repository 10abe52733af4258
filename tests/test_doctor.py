"""What `regard doctor` measures, and that its text and its JSON say the same."""

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch

from regard import doctor
from regard.cli import main
from regard.doctor import examine, format_findings


def rows(text: str) -> list[tuple[str, str]]:
    """The names and values of the lines before what is missing."""
    lines = text.partition("\n\n")[0].splitlines()
    return [(name, value) for name, value in (line.split(maxsplit=1) for line in lines)]


def test_the_measurement_is_in_the_json_and_in_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    speed = findings["speed"]
    assert set(speed) == {
        "device",
        "precision",
        "float32_gflops",
        "bfloat16_gflops",
        "summary",
    }
    assert speed["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    figures = speed["float32_gflops"], speed["bfloat16_gflops"]
    assert all(figure > 0 for figure in figures)
    faster = figures[1] >= 1.15 * figures[0]
    assert speed["precision"] == ("bfloat16" if faster else "float32")
    why = "measured as faster" if faster else "bfloat16 is not clearly faster here"
    assert speed["summary"] == (
        f"{speed['precision']} ({why}: float32 {figures[0]:,.0f} GFLOP/s, "
        f"bfloat16 autocast {figures[1]:,.0f} GFLOP/s)"
    )
    assert ("precision", speed["summary"]) in rows(format_findings(findings))


def test_every_extra_is_looked_for_and_can_be_installed_as_it_says() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    packages = {name: wanted for name, wanted in extras.items() if name not in ("all", "test")}
    for name, wanted in packages.items():
        for package in (re.split(r"[^\w-]", line)[0] for line in wanted):
            assert f"regard[{name}]" in doctor.OPTIONAL[package]


def test_the_text_has_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    found = rows(capsys.readouterr().out)
    names = [name for name, _ in found]
    assert names[:3] == ["regard", "python", "system"]
    for package in doctor.REQUIRED:
        assert (package, metadata.version(package)) in found
    assert set(doctor.OPTIONAL) <= set(names)
    assert names.index("cpu") < names.index("cores") < names.index("memory")
    assert ("threads", str(torch.get_num_threads())) in found
    assert "gpu" in names
    assert names[-1] == "precision"
    precision = r"(float32|bfloat16) \(.+: float32 [\d,]+ GFLOP/s, bfloat16 autocast [\d,]+ GFLOP/s"
    assert re.fullmatch(precision + r"\)", found[-1][1])


def test_what_is_missing_comes_last_with_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package in ("zstandard", "sacrebleu"):
            raise metadata.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    findings = examine(measure=False)
    assert "speed" not in findings
    assert findings["extras"]["zstandard"] is None
    text = format_findings(findings)
    assert ("zstandard", "MISSING") in rows(text)
    assert text.endswith(
        "\n\nmissing\n"
        "  sacrebleu, needed: python -m pip install regard\n"
        "  zstandard, to read .zst files: python -m pip install 'regard[zst]'"
    )
