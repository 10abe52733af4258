"""From two text files to translations, as a user types it: processes, pipes and exit codes."""

import json
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from end_to_end.conftest import Trained, call, environment, regard_command

from regard.weights.run_folder import RunFolder


def shell(line: str, *, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line in which $REGARD stands for the command."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        check=False,
        timeout=300,
    )


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        regard_command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def type_line(process: subprocess.Popen[bytes], line: str) -> bytes:
    """Type a line and wait for the answer; a process that doesn't give one is ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    patience = threading.Timer(120, process.kill)
    patience.start()
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
    answer = process.stdout.readline()
    patience.cancel()
    return answer


def test_training_leaves_stdout_to_results_and_no_carriage_return(trained: Trained) -> None:
    assert trained.out == ""
    assert b"\r" not in trained.err
    assert b"\x1b" not in trained.err
    names = {path.name for path in trained.run.iterdir()}
    assert names >= {
        "recipe.toml", "model.safetensors", "tokenizer.json", "metrics.jsonl", "checkpoints",
        "report.html", "manifest.json",
    }  # fmt: skip


def test_the_figures_seen_in_training_are_those_of_evaluate(trained: Trained) -> None:
    step = int(RunFolder.open(trained.run).model_notes()["step"])
    records = map(json.loads, (trained.run / "metrics.jsonl").read_text().splitlines())
    (seen,) = (each for each in records if each["event"] == "valid" and each["step"] == step)
    done = call(
        ["evaluate", trained.run, "--source", trained.source, "--reference", trained.target,
         "--json"]
    )  # fmt: skip
    figures = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert figures["bleu"] == {"value": seen["bleu"], "signature": seen["bleu_signature"]}
    assert figures["chrf"] == {"value": seen["chrf"], "signature": seen["chrf_signature"]}
    assert figures["perplexity"] == pytest.approx(seen["perplexity"], rel=1e-6)


def test_a_file_in_is_a_file_out(trained: Trained, tmp_path: Path) -> None:
    source = "the light is on.\na\u2028b\n\na\x85b\na\x0cb\na\rb\nx.\r y ;\r\n \nlast"
    (tmp_path / "in.en").write_bytes(b"\xef\xbb\xbf" + source.encode())
    line = f"$REGARD translate {trained.run} --beam 2 < in.en > out.de 2> log"
    assert shell(line, cwd=tmp_path).returncode == 0
    out = (tmp_path / "out.de").read_bytes()
    assert out.endswith(b"\n")
    assert out.count(b"\n") == 9
    assert [not text for text in out.split(b"\n")[:-1]] == [
        not text.strip() for text in source.split("\n")
    ]
    log = (tmp_path / "log").read_bytes()
    assert b"\r" not in log
    assert all(text.startswith(b"warning: ") for text in log.splitlines())


def test_a_reader_that_has_seen_enough_is_no_error(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_bytes(b"the light is on.\n" * 300)
    line = f"$REGARD translate {trained.run} --beam 1 --max-tokens 4 < in.en | head -1"
    done = shell(line, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1


def test_a_line_typed_is_answered_before_the_next_and_ctrl_c_ends_it(trained: Trained) -> None:
    with start("translate", trained.run, "--beam", 1) as process:
        first = type_line(process, "the light is on.")
        assert first.strip()
        assert type_line(process, "") == b"\n"
        assert type_line(process, "the light is on.") == first
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"interrupted\n"


def test_sigterm_leaves_no_half_written_file(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "out.de"
    with start("translate", trained.run, "--output", out, "--report", "/dev/stdout") as process:
        report = type_line(process, "the light is on.")
        assert json.loads(report)["source"] == "the light is on."
        process.terminate()
        assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


def test_average_and_score_work_as_printed(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "average"
    done = call(["average", trained.run, "--last", 2, "--out", out])
    assert (done.returncode, done.stdout) == (0, f"{out}\n".encode())
    done = call(["score", out, "--source", trained.source, "--target", trained.target])
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 20
    assert done.stderr.startswith(b"perplexity ")
