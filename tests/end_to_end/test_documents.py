"""The examples of README and docs run as they are printed."""

import re
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


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md", "docs/architecture.md"])
def test_every_link_to_a_file_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / document).parent.joinpath(link).exists(), link
