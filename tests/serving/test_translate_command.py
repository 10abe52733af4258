"""`regard translate`: as many lines out as in, in order, and what goes beside them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from serving.command import Command, Done
from serving.tiny_families import make_language_run
from serving.tiny_runs import TEXT

from regard.serving.translator import Translator

LINES = {
    "line separator": "a\u2028b",
    "next line": "a\x85b",
    "form feed": "a\x0cb",
    "carriage return": "a\rb",
    "full stop and return": "x.\r y ;",
    "nul": "a\0b",
    "control token": "</s> <pad>",
    "spaces": "  a  ",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("end", ["\n", "\r\n", ""], ids=["lf", "crlf", "none"])
def test_a_line_is_one_line_whatever_it_holds(
    command: Command, run_path: Path, translator: Translator, line: str, end: str
) -> None:
    data = f"the light\n{line}\nlast one\n{line}{end}".encode()
    done = command("translate", run_path, "--beam=1", "--no-repeat-ngram=2", stdin=data)
    assert done.code == 0
    assert done.lines == translator.translate(
        ["the light", line, "last one", line], beam=1, no_repeat_ngram=2
    )


def test_many_lines_with_blank_ones_amid_them_stay_in_order(
    command: Command, run_path: Path, translator: Translator
) -> None:
    words = ["", "light", "kitchen on", *LINES.values(), " ", "\t", "", "please, off"]
    words += [""] * (-len(words) % 4)
    lines = (words * 130)[:1300]
    options = {"beam": 1, "max_tokens": 3}
    expected = {word: translator.translate(word, **options) for word in set(words)}
    assert len(set(expected.values())) > 4
    assert sum(not line.strip() for line in lines) >= 1300 / 4
    data = "".join(f"{line}\n" for line in lines).encode()
    done = command("translate", run_path, "--beam=1", "--max-tokens=3", stdin=data)
    assert (done.code, done.lines) == (0, [expected[line] for line in lines])


def test_a_byte_order_mark_is_no_text(
    command: Command, run_path: Path, translator: Translator
) -> None:
    done = command("translate", run_path, stdin=b"\xef\xbb\xbfthe light\n\nlast")
    assert done.lines == translator.translate(["the light", "", "last"])
    assert command("translate", run_path, stdin=b"\xef\xbb\xbf") == Done(0, b"", "")


def test_nothing_in_is_nothing_out(command: Command, run_path: Path, tmp_path: Path) -> None:
    assert command("translate", run_path) == Done(0, b"", "")
    (tmp_path / "in").touch()
    done = command("translate", run_path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (done, (tmp_path / "out").read_bytes()) == (Done(0, b"", ""), b"")
    assert command("translate", run_path, stdin=b"\n\n") == Done(0, b"\n\n", "")


def test_no_memory_is_taken_for_tokens_that_may_never_come(
    command: Command, run_path: Path
) -> None:
    sample = ["translate", run_path, "--sample", "--n-best=2", "--engine=torch"]
    done = command(*sample, f"--max-tokens={2**20}", stdin=b"light\n")
    assert done.code == 0
    assert done.out == command(*sample, "--max-tokens=5000", stdin=b"light\n").out


def test_the_n_best_are_lines_with_number_and_score(
    command: Command, run_path: Path, translator: Translator
) -> None:
    done = command("translate", run_path, "--n-best=3", stdin=b"light\n\noff\n")
    expected = [
        f"{number}\t{each.score:.4f}\t{each.text}"
        for number, found in enumerate(
            translator.translations(["light", "", "off"], n_best=3), start=1
        )
        for each in found.hypotheses
    ]
    assert done.lines == expected
    assert [line.split("\t")[0] for line in expected] == ["1", "1", "1", "2", "3", "3", "3"]


def test_the_report_tells_all_of_each_line(
    command: Command, run_path: Path, translator: Translator, tmp_path: Path
) -> None:
    path = tmp_path / "report.jsonl"
    sources = ["light", "", "a\u2028b\x85", "off"]
    data = "\n".join(sources).encode()
    done = command("translate", run_path, "--report", path, "--n-best=2", stdin=data)
    assert done.code == 0
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) == text.count("\n") == len(sources)
    tokenizer = translator.tokenizers.target
    found = translator.translations(sources, n_best=2)
    for number, (line, source, each) in enumerate(
        zip(text.splitlines(), sources, found, strict=True), start=1
    ):
        record = json.loads(line)
        hypotheses = record.pop("hypotheses")
        assert record == {
            "line": number,
            "source": source,
            "text": each.text,
            "tokens": tokenizer.tokens(each.tokens),
            "score": pytest.approx(each.score, abs=1e-4),
            "log_prob": pytest.approx(each.log_prob, abs=1e-4),
            "finished": each.finished,
        }
        assert [one["text"] for one in hypotheses] == [one.text for one in each.hypotheses]
        assert hypotheses[0] == {key: record[key] for key in hypotheses[0]}


def test_alignments_are_in_pharaoh_format(
    command: Command, run_path: Path, translator: Translator, tmp_path: Path
) -> None:
    path = tmp_path / "links"
    command("translate", run_path, "--alignments", path, stdin=b"the light\n\noff\n")
    found = translator.translations(["the light", "", "off"], alignments=True)
    assert path.read_text(encoding="utf-8").split("\n") == [*(each.pharaoh for each in found), ""]
    assert found[0].pharaoh


def test_cut_translations_are_counted_with_their_lines(
    command: Command, run_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    done = command(
        "translate", run_path, "--max-tokens=1", "--report", report, stdin=b"light\n\noff\n"
    )
    finished = [json.loads(line)["finished"] for line in report.read_text().splitlines()]
    assert finished == [False, True, False]
    assert done.err == (
        "warning: 2 of 3 translations were cut before they came to an end (lines 1, 3); "
        "--report says which\n"
    )


def test_a_line_longer_than_in_training_is_warned_of_and_translated(
    command: Command, run_path: Path
) -> None:
    line = "the light. " * 12
    # After the first window, to see that the numbers go on.
    data = "\n" * 99 + f"{line}\n"
    done = command("translate", run_path, "--beam=1", stdin=data.encode())
    assert len(done.lines) == 100
    assert done.lines[99]
    assert done.err.split("\n")[0] == (
        "warning: standard input, line 100: 49 tokens is more than the 24 that the model was "
        "trained on; translated in 2 pieces"
    )


def test_a_prefix_begins_every_line_but_a_blank_one(command: Command, run_path: Path) -> None:
    done = command("translate", run_path, "--prefix", "-das", stdin=b"light\n\noff\n")
    assert [line[:4] for line in done.lines] == ["-das", "", "-das"]


def test_prefixes_of_a_file_go_line_by_line(
    command: Command, run_path: Path, translator: Translator, tmp_path: Path
) -> None:
    path = tmp_path / "prefixes"
    path.write_text("das\n\nmach", encoding="utf-8")
    arguments = ("translate", run_path, "--prefix-file", path)
    done = command(*arguments, stdin=b"light\noff\nlight\n")
    assert done.lines[0].startswith("das")
    assert done.lines[1] == translator.translate("off")
    assert done.lines[2].startswith("mach")
    hint = "  It must hold one line, which may be empty, for each line of the input.\n"
    done = command(*arguments, stdin=b"light\noff\nlight\noff\n")
    assert (done.code, done.err) == (
        2,
        f"error: {path}: the file has 3 lines and the input has more\n{hint}",
    )
    done = command(*arguments, stdin=b"light\n")
    assert (done.code, len(done.lines)) == (2, 1)
    assert f"error: {path}: the file has 3 lines and standard input has 1\n{hint}" in done.err


def test_bad_bytes_end_the_work_after_the_lines_before_them(
    command: Command, run_path: Path, translator: Translator, tmp_path: Path
) -> None:
    data = b"light\noff\nli\xffght\noff\n"
    problem = (
        "line 3: byte 3 of the line is 0xff, which is not valid UTF-8 here\n"
        "  convert the file, for example: iconv -f latin1 -t utf-8 OLD > NEW\n"
    )
    done = command("translate", run_path, stdin=data)
    assert (done.code, done.lines) == (2, translator.translate(["light", "off"]))
    assert done.err == f"error: standard input, {problem}"
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_bytes(data)
    done = command("translate", run_path, "--input", path, "--output", out)
    assert done == Done(2, b"", f"error: {path}, {problem}")
    assert list(tmp_path.iterdir()) == [path]


def test_sampling_with_a_seed_is_the_same_twice(command: Command, run_path: Path) -> None:
    arguments = ("translate", run_path, "--sample", "--top-k=20", "--n-best=2")
    first, again, other = (
        command(*arguments, f"--seed={seed}", stdin="\n".join(TEXT).encode()) for seed in (1, 1, 2)
    )
    assert first.out == again.out != other.out


def test_an_ensemble_is_named_after_the_run(command: Command, run_path: Path) -> None:
    alone = command("translate", run_path, stdin=b"light\n")
    twice = command("translate", run_path, "--ensemble", run_path, stdin=b"light\n")
    note = "note: PyTorch translates; the engine does not support an ensemble\n"
    assert (twice.code, twice.out) == (alone.code, alone.out)
    assert twice.err.removeprefix(note) == alone.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no"], "error: no: there is no such run folder\n"),
        (["RUN", "--ensemble", "no"], "error: no: there is no such run folder\n"),
        (["RUN", "--input", "no"], "error: no: no such file\n  check the path\n"),
        (["RUN", "--prefix-file", "no"], "error: no: no such file\n  check the path\n"),
        (
            ["RUN", "--output", "no/o"],
            "error: no/o: cannot be written: No such file or directory\n",
        ),
        (
            ["RUN", "--prefix", "a", "--prefix-file", "b"],
            "error: --prefix: cannot go with --prefix-file\n  Give one of the two.\n",
        ),
        (
            ["RUN", "--temperature", "9", "--top-k", "3"],
            "error: --temperature, --top-k: "
            'temperature = 9.0 and top_k = 3 need method = "sample"\n'
            "  Sampling is asked for with --set decoding.method=sample (translate: --sample).\n",
        ),
        (
            ["RUN", "--sample", "--beam", "4"],
            'error: --sample, --beam: beam = 4 needs method = "beam"\n'
            "  Sampling has no use for it: leave out the one or the other.\n",
        ),
        (
            ["RUN", "--n-best", "9"],
            "error: --n-best: n_best = 9 is more than beam = 4\n",
        ),
        (
            ["RUN", "--sample", "--n-best", "100000000000"],
            "error: --n-best: expected a whole number that is at least 1 and at most 10000, "
            "got 100000000000\n",
        ),
        (
            ["RUN", "--beam", "10001"],
            "error: --beam: expected a whole number that is at least 1 and at most 10000, "
            "got 10001\n",
        ),
        (
            ["RUN", "--alpha", "nan"],
            "error: --alpha: expected a number, got nan\n",
        ),
        (
            ["RUN", "--beam", "3", "--set", "decoding.beam=2"],
            "error: --beam, --set decoding.beam: decoding.beam is given two values, 3 and 2\n"
            "  Give the one or the other.\n",
        ),
        (
            ["RUN", "--set", "decoding.beem=2"],
            "error: --set decoding.beem: unknown key; did you mean decoding.beam?\n",
        ),
        (
            ["RUN", "--set", "model.d_model=2"],
            "error: --set model.d_model: only decoding can be changed here\n"
            "  The rest was settled when the run was trained.\n",
        ),
    ],
)  # fmt: skip
def test_refusals_say_what_is_wrong(
    command: Command,
    run_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [run_path if word == "RUN" else word for word in arguments]
    assert command("translate", *named, stdin=b"light\n") == Done(2, b"", text)


def test_what_is_wrong_is_said_without_waiting_for_torch(run_path: Path, tmp_path: Path) -> None:
    other = make_language_run(tmp_path / "gpt")
    code = (
        "import sys; from regard.cli import main\n"
        "codes = [main([*line, '--set=decoding.beem=1']) for line in (('translate', RUN), "
        "('evaluate', RUN, '--source=a', '--reference=b'))]\n"
        "codes.append(main(['score', RUN, '--source=no', '--target=no']))\n"
        "codes.append(main(['average', 'no']))\n"
        "given = {'translate': (), 'evaluate': ('--source=a', '--reference=b'), "
        "'score': ('--source=a', '--target=b')}\n"
        "codes += [main([name, *runs, *files]) for name, files in given.items() "
        "for runs in ((OTHER,), (RUN, '--ensemble', OTHER))]\n"
        "sys.exit(codes != [2] * 10 or 'torch' in sys.modules)"
    )
    code = code.replace("RUN", repr(str(run_path))).replace("OTHER", repr(str(other)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.count(b"error: ") == 10
    assert done.stderr.count(f"error: {other}: this is of the family".encode()) == 6


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("--output", "a"), ("--report", "a")),
        (("--report", "a"), ("--alignments", "./a")),
        (("--input", "in.en"), ("--output", "in.en")),
        (("--input", "link"), ("--report", "in.en")),
        (("--prefix-file", "in.en"), ("--output", "hard")),
    ],
)
def test_two_things_in_one_file_are_refused(
    command: Command,
    run_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one: tuple[str, str],
    other: tuple[str, str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = Path("in.en")
    text.write_text("the light\n", encoding="utf-8")
    Path("link").symlink_to(text)
    Path("hard").hardlink_to(text)
    done = command("translate", run_path, *one, *other, stdin=b"the light\n")
    assert (done.code, done.out) == (2, b"")
    shown = Path(other[1])
    assert done.err == (
        f"error: {other[0]} {shown}: the file is that of {one[0]} too\n  Give each its own file.\n"
    )
    assert text.read_text(encoding="utf-8") == "the light\n"
