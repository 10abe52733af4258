"""`regard generate`: prompts in, texts out, as they come."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from serving.command import Command
from serving.tiny_families import ROTARY, make_language_run

import regard
from regard.cli import main
from regard.serving.generator import Generator
from regard.serving.outputs import LineWriter


@pytest.fixture(scope="module")
def language_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_language_run(tmp_path_factory.mktemp("runs") / "gpt")


@pytest.fixture(scope="module")
def generator(language_run: Path) -> Generator:
    return regard.load_language_model(language_run, device="cpu")


def test_one_prompt_is_printed_with_its_text_piece_by_piece(
    command: Command,
    language_run: Path,
    generator: Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[bytes] = []
    write = LineWriter.write_bytes
    monkeypatch.setattr(
        LineWriter, "write_bytes", lambda self, data: (written.append(data), write(self, data))[1]
    )
    done = command("generate", language_run, "--prompt", "the light", "--seed", 5)
    text = generator.generate("the light", seed=5)
    assert (done.code, done.err) == (0, "")
    assert done.out.decode() == f"the light{text}\n"
    assert written[0] == b"the light"
    assert [piece.decode() for piece in written[1:-1]] == list(
        generator.stream("the light", seed=5)
    )
    assert len(written) > 3


def test_several_results_are_parted_by_a_line(
    command: Command, language_run: Path, generator: Generator
) -> None:
    texts = generator.generate(["the", "das"], samples=2)
    expected = [
        f"{prompt}{text}" for prompt, found in zip(["the", "das"], texts, strict=True)
        for text in found
    ]  # fmt: skip
    done = command("generate", language_run, "--prompt=the", "--prompt=das", "--samples=2")
    assert (done.code, done.err) == (0, "")
    assert done.out.decode() == "\n---\n".join(expected) + "\n"


def test_a_file_or_standard_input_has_a_prompt_a_line(
    command: Command, language_run: Path, generator: Generator, tmp_path: Path
) -> None:
    prompts = ["the light", "", "das Licht"]
    data = "\n".join(prompts).encode()
    (tmp_path / "prompts.txt").write_bytes(data)
    expected = "\n---\n".join(
        prompt + text for prompt, text in zip(prompts, generator.generate(prompts), strict=True)
    )
    done = command("generate", language_run, "--prompt-file", tmp_path / "prompts.txt")
    assert (done.code, done.out.decode()) == (0, expected + "\n")
    assert command("generate", language_run, stdin=data) == done
    assert command("generate", language_run, stdin=b"").out == b""


def test_json_is_a_record_a_sample(
    command: Command, language_run: Path, generator: Generator
) -> None:
    done = command(
        "generate", language_run, "--prompt=the", "--prompt=", "--samples=2", "--json",
        "--temperature=1.5", "--top-k=9", "--top-p=0.9", "--min-p=0.01",
        "--repetition-penalty=1.1", "--stop=light", "--stop=\n", "--set=generation.max_tokens=5",
    )  # fmt: skip
    assert done.code == 0
    found = generator.continuations(
        ["the", ""], samples=2, temperature=1.5, top_k=9, top_p=0.9, min_p=0.01,
        repetition_penalty=1.1, stop=("light", "\n"), max_tokens=5,
    )  # fmt: skip
    records = [json.loads(line) for line in done.lines]
    assert records == [
        {
            "number": number,
            "sample": sample,
            "prompt": each.prompt,
            "text": each.text,
            "tokens": generator.vocabulary.tokens(each.tokens),
            "log_prob": pytest.approx(each.log_prob, abs=1e-4),
            "finish": each.finish,
        }
        for number, samples in enumerate(found, start=1)
        for sample, each in enumerate(samples, start=1)
    ]


def test_says_that_the_models_positions_end(command: Command, language_run: Path) -> None:
    done = command("generate", language_run, "--prompt=a b c", "--max-tokens=99")
    assert done.code == 0
    assert done.err == (
        "warning: prompt 1: its 7 tokens and 18 more fill the model's 24 positions; no more than "
        "these are drawn\n"
    )


def test_no_memory_is_taken_for_tokens_that_may_never_come(
    command: Command, language_run: Path, tmp_path: Path
) -> None:
    run = make_language_run(tmp_path / "endless", positions=ROTARY)
    done = command("generate", run, "--prompt=a", f"--max-tokens={10**9}", "--stop=e")
    assert (done.code, done.err) == (0, "")
    assert done.out == command("generate", run, "--prompt=a", "--stop=e", "--max-tokens=5000").out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--prompt=a", "--prompt-file=b"], "--prompt: cannot go with --prompt-file\n"),
        (["--prompt-file=none.txt"], "none.txt: no such file\n"),
        (["--set=model.d_model=3"], "--set model.d_model: only generation can be changed here\n"),
        (
            ["--top-p=2"],
            "--top-p: expected a number that is more than 0 and at most 1, got 2",
        ),
        (
            ["--temperature=nan"],
            "--temperature: expected a number that is at least 0 and at most 1000000.0, got nan\n",
        ),
        (
            ["--samples=100000000000"],
            "--samples: expected a whole number that is at least 1 and at most 10000, got 1000000",
        ),
        (["--stop="], "--stop: an empty string of stop would stop before anything is drawn\n"),
        (
            ["--top-k=92233720368547758070"],
            "--top-k: a whole number is at most 9,223,372,036,854,775,807, got 922337203685477",
        ),
        (
            ["--max-tokens=5", "--set=generation.max_tokens=6"],
            "--max-tokens, --set generation.max_tokens: generation.max_tokens is given two "
            "values, 5 and 6\n  Give the one or the other.\n",
        ),
        (
            ["--set=generation.seed=3", "--set=generation.seed=4"],
            "--set generation.seed: generation.seed is given two values, 3 and 4\n",
        ),
        (
            ["--temperature=0", "--top-k=5", "--set=generation.min_p=0.5"],
            "--temperature, --top-k, --set generation.min_p: top_k = 5 and min_p = 0.5 have no "
            "effect with temperature = 0\n  The likeliest token is always taken: leave out the "
            "one or the other.\n",
        ),
        (
            ["--repetition-penalty=1e-300"],
            "--repetition-penalty: expected a number that is at least 0.01 and at "
            "most 100, got 1e-300",
        ),
        (["--stop=a", "--stop=a\udcff"], "--stop: character 2 is not valid UTF-8\n"),
        (["--prompt=a", "--prompt=\udcff"], "--prompt: character 1 is not valid UTF-8\n"),
        (["--prompt=" + "x" * 40], "prompt 1: the prompt has "),
    ],
)
def test_refuses_what_makes_no_sense(
    command: Command, language_run: Path, arguments: list[str], text: str
) -> None:
    done = command("generate", language_run, *arguments)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"error: {text}")


def test_a_closed_standard_input_is_refused_with_the_option_that_there_is(
    language_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["generate", str(language_run)]) == 2
    assert capsys.readouterr().err == (
        "error: standard input: it is closed\n  Give a file: --prompt-file FILE.\n"
    )


def test_refuses_a_run_of_another_family_with_the_name_of_its_command(
    command: Command, run_path: Path, language_run: Path
) -> None:
    done = command("generate", run_path, "--prompt=the", "--max-tokens=3", "--samples=2")
    assert done.code == 2
    assert "regard translate, or regard.load in Python" in done.err
    done = command("translate", language_run, stdin=b"the\n")
    assert done.code == 2
    assert "regard generate, or regard.load_language_model" in done.err


def endless(language_run: Path) -> list[str]:
    return [
        sys.executable, "-m", "regard", "generate", str(language_run), "--prompt", "the light",
        "--max-tokens", "9999999", "--set", "generation.temperature=0.0",
    ]  # fmt: skip


def test_text_comes_at_once_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    run = make_language_run(tmp_path / "endless", positions=ROTARY, end=0.0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        endless(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(60).startswith(b"the light")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.decode().strip() in {"interrupted", ""}


def test_a_reader_that_goes_away_is_no_mistake(tmp_path: Path) -> None:
    run = make_language_run(tmp_path / "endless", positions=ROTARY, end=0.0)
    with subprocess.Popen(endless(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(60)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0
