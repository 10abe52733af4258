"""A signal while a command starts: exit code 130, and no traceback."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from end_to_end.conftest import environment, pairs

pytestmark = pytest.mark.usefixtures("hang_up")

# What the process says when it has come so far; `-X importtime` names each module once loaded.
MOMENTS = [
    (" cyclopts", signal.SIGINT),
    (" regard.cli", signal.SIGTERM),
    (" numpy", signal.SIGTERM),  # torch loads it, and forgets what is raised meanwhile
    (" torch.nn.functional", signal.SIGINT),
    (" tokenizers", signal.SIGTERM),
    (" regard.recipes.assembly", signal.SIGINT),
    ("text: ", signal.SIGTERM),
    ("text: ", signal.SIGHUP),
    ("training on ", signal.SIGINT),
]


TRAIN = (
    "train tiny --tsv pairs.tsv --set training.max_steps=400 "
    "--set training.precision=float32 --set training.device=cpu"
)
GOLDEN = Path(__file__).parents[1] / "golden/run"
CASES = [
    (f"quantize {GOLDEN} --out packed", " regard.errors", signal.SIGINT),
    (f"quantize {GOLDEN} --out packed", " regard.engine.packing", signal.SIGTERM),
    *((TRAIN, moment, number) for moment, number in MOMENTS),
    (f"translate {GOLDEN}", " numpy", signal.SIGINT),
    (f"score {GOLDEN} --engine torch --source a.txt --target a.txt", " torch._C", signal.SIGTERM),
]


@pytest.mark.parametrize(("line", "moment", "number"), CASES)
def test_a_signal_ends_it_with_130_and_no_traceback(
    line: str, moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs())
    (tmp_path / "pairs.tsv").write_text(text, encoding="utf-8")
    (tmp_path / "a.txt").write_text("the light is on now.\n" * 5000, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "regard", *line.split()],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = threading.Timer(60, process.kill)
    patience.start()
    try:
        assert process.stderr is not None
        while moment not in (said := process.stderr.readline()):
            assert said, "it ended before it came so far"
        process.send_signal(number)
        out, err = process.communicate()
    finally:
        patience.cancel()
        process.kill()
    lines = [each for each in err.split("\n") if not each.startswith("import time:")]
    assert process.returncode == 130, lines
    assert out == ""
    assert "Traceback" not in err
    assert "ignored" not in err
    assert any(each.startswith(("interrupted", "stopped as asked")) for each in lines)


# A signal when `main` has come back, and one when Python has taken its own handlers away.
ENDING = """
import os, signal, sys
import regard.__main__

class Last:
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.{name}):
        kill(me, number)

sys.argv[1:] = {arguments}
keep = Last()
code = regard.__main__.main()
os.kill(os.getpid(), signal.{name})
sys.exit(code)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_after_the_end_changes_nothing(name: str, tmp_path: Path) -> None:
    out = tmp_path / "packed"
    for arguments, code in ((["quantize", str(GOLDEN), "--out", str(out)], 0), (["info"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", ENDING.format(name=name, arguments=arguments)],
            env=environment(),
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr
        assert not (code == 0 and done.stderr)
    assert sorted(each.name for each in out.iterdir() if each.suffix) == [
        "manifest.json", "model.packed", "recipe.toml", "tokenizer.json"
    ]  # fmt: skip
