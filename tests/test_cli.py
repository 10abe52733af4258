"""The command line as a user types it: output, errors and exit codes."""

import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import COMMANDS, app, main
from regard.decoding.config import DecodingConfig
from regard.decoding.generation import GenerationConfig
from regard.errors import Interrupted, RecipeError
from regard.exits import run_guarded
from regard.recipes.load import load_recipe
from regard.recipes.names import preset_names
from regard.recipes.recipe import AnyRecipe, Recipe


def run(
    *arguments: str, cwd: Path | None = None, shell: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `regard` with arguments, or a shell line in which $REGARD stands for it."""
    command = [sys.executable, "-m", "regard", *arguments]
    environment = {**os.environ, "REGARD": f"{sys.executable} -m regard", "COLUMNS": "80"}
    environment.pop("PYTHONUNBUFFERED", None)  # as a user has it: the last flush is Python's own
    return subprocess.run(
        ["bash", "-c", shell] if shell else command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_goes_to_stdout_and_names_every_command() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    commands = re.findall(r"^│ ([a-z]+) ", done.stdout, re.MULTILINE)
    assert commands == [*(command.__name__.rstrip("_") for command in COMMANDS), "recipe"]


def test_no_torch_is_imported_for_help_and_recipes() -> None:
    commands = ["--help", "--version", "train --help", "recipe show base", "info base"]
    code = (
        "import sys; from regard.cli import main\n"
        f"codes = [main(line.split()) for line in {commands}]\n"
        "sys.exit(any(codes) or 'torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    )


def test_importing_regard_imports_no_torch_and_knows_its_names() -> None:
    code = (
        "import sys, regard\n"
        "assert set(regard.__all__) <= set(dir(regard))\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'pydantic', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", regard.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(regard, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'lod'"):
        regard.lod  # noqa: B018


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout == f"{regard.__version__}\n"


def test_recipe_list_is_a_line_a_recipe() -> None:
    done = run("recipe", "list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == preset_names()


def test_a_recipe_shown_is_a_file_to_start_from(tmp_path: Path) -> None:
    written = run(shell="$REGARD recipe show big --set training.seed=7 > my.toml", cwd=tmp_path)
    assert written.returncode == 0
    text = (tmp_path / "my.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["training"]["seed"] == 7
    assert load_recipe(str(tmp_path / "my.toml")) == load_recipe("big", ["training.seed=7"])
    assert run("recipe", "show", "my.toml", cwd=tmp_path).stdout == text


def test_info_counts_the_papers_base_exactly() -> None:
    done = run("info", "base", "--set", "vocabulary.size=37000", "--json")
    assert json.loads(done.stdout)["parameters"] == 63_082_496
    text = run("info", "base", "--set", "vocabulary.size=37000", "--set=model.attention_bias=false")
    assert "parameters  63,045,632 (240.5 MiB in float32)\n" in text.stdout


def test_doctor_says_what_a_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--quick", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["regard"] == regard.__version__
    assert findings["packages"]["torch"]
    assert findings["cores"]["usable"] >= 1
    assert findings["threads"] >= 1
    assert main(["doctor", "--quick"]) == 0
    text = capsys.readouterr().out
    for word in ("python", "torch", "cores", "memory", "threads", "gpu"):
        assert re.search(rf"^{word} +\S", text, re.MULTILINE), word


REFUSALS = {
    "trian": (
        'error: Unknown command "trian". Did you mean "train"? Available commands: '
        "demo, train, finetune, translate, evaluate, score, generate, embed, ...\n"
    ),
    "train": 'error: Command "train" parameter RECIPE requires an argument.\n',
    "translate x --beam a": ('error: Invalid value for --beam: expected a whole number, got "a"\n'),
    "translate x --beem 4": "error: Unknown option: --beem. Did you mean --beam?\n",
    "recipe show bse": (
        "error: bse: no such recipe, file or run folder\n"
        "  Did you mean base? Recipes: tiny, demo, small, base, big, gpt-char, gpt-mini, "
        "llama-mini, gpt2, bert-mini, bert-base. "
        "Or give a TOML file or a run folder.\n"
    ),
    "info base --set model.dropuot=0": (
        "error: --set model.dropuot: unknown key; did you mean model.dropout?\n"
    ),
    "train base --source a.en": (
        "error: --source: 1 source file and 0 target files: "
        "each source file needs its target file, in the same order\n"
    ),
    "train gpt-char --text a.txt --source a.en": (
        'error: --source: gpt-char is of the family "decoder", which has no use for it\n'
        "  Give its text with --text FILE.\n"
    ),
    "train base --text a.txt": (
        'error: --text: base is of the family "seq2seq", which has no use for it\n'
        "  Give its text with --source FILE --target FILE.\n"
    ),
    "finetune gpt-char --labels a.tsv": (
        'error: gpt-char: this is of the family "decoder", and one of "encoder" is wanted\n'
        "  It goes on with a text: regard generate, or regard.load_language_model in Python.\n"
    ),
    "finetune bert --labels a.tsv --epochs 2 --set training.max_steps=3": (
        "error: --set training.max_steps: says in steps what --epochs says in epochs\n"
        "  Give the one or the other.\n"
    ),
    "train base --tsv a --init-encoder runs/x --set model.d_model=8": (
        "error: --set model.d_model: has no effect with --init-encoder: the shape comes from "
        "that run\n"
    ),
    "train base --tsv a --init-decoder runs/x --set model.positions.kind=rotary": (
        "error: --set model.positions.kind: has no effect with --init-decoder: the shape comes "
        "from that run\n"
    ),
    "train base --tsv a --init-encoder runs/x --set vocabulary.size=300": (
        "error: --set vocabulary.size: has no effect with --init-encoder: the vocabulary comes "
        "from that run\n"
    ),
    "train runs/x --resume --out y": (
        "error: --out: cannot go with --resume\n"
        "  regard train RUN --resume goes on in the run folder RUN as it was.\n"
    ),
}


@pytest.mark.parametrize(("line", "text"), REFUSALS.items(), ids=REFUSALS)
def test_a_users_mistake_exits_with_2_and_says(
    line: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(line.split())
    captured = capsys.readouterr()
    assert (code, captured.out, captured.err) == (2, "", text)


def test_the_process_exits_with_the_code_too() -> None:
    done = run("recipe", "show", "bse")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: bse: no such recipe")


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = run(shell="set -o pipefail; $REGARD recipe show base | head -1 >&2")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("description = ")
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_pipe_is_quiet() -> None:
    for command in ("recipe show base", "recipe list", "--help", "--version"):
        done = run(shell=f"set -o pipefail; $REGARD {command} | true")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), command


def test_a_full_disk_is_said_plainly() -> None:
    if not Path("/dev/full").exists():
        return
    for command in ("recipe show base", "--help", "--version", "train --help"):
        done = run(shell=f"$REGARD {command} > /dev/full")
        assert (done.returncode, done.stderr) == (
            2,
            "error: standard output: cannot be written: No space left on device\n",
        ), command
    done = run(shell="$REGARD recipe list 1</dev/null")  # open, and not to be written to
    assert (done.returncode, done.stderr) == (
        2,
        "error: standard output: cannot be written: Bad file descriptor\n",
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", ">&- 2>/dev/full"])
def test_a_closed_output_is_a_mistake_only_where_the_result_goes(closed: str) -> None:
    done = run(shell=f"$REGARD recipe list {closed}")
    assert done.returncode == (0 if closed == "2>&-" else 2)
    assert ("standard output: it is closed" in done.stderr) == (closed == ">&-")


@pytest.mark.parametrize("errors", ["2>/dev/full", "2>&-", "2>&3"])
def test_a_mistake_that_can_not_be_said_keeps_its_exit_code(errors: str, tmp_path: Path) -> None:
    broken = f"mkfifo {tmp_path}/p; exec 4<>{tmp_path}/p 3>{tmp_path}/p 4>&-; "  # 3: no reader
    for command in ("recipe show bse", "info nosuch", "score nosuch --source a --target b"):
        done = run(shell=f"{broken} $REGARD {command} {errors}")
        assert (done.returncode, done.stdout) == (2, ""), command
        (tmp_path / "p").unlink()


@pytest.mark.parametrize("closed", ["2>&3", "<&- >&- 2>&-"])
def test_training_that_nobody_watches_is_saved(closed: str, tmp_path: Path) -> None:
    words = ["".join(letters) for letters in itertools.product("aeiou", repeat=3)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word}\n" for word in words))
    settings = {
        "vocabulary.size": 280,
        "data.valid_pairs": 10,
        "training.max_steps": 2,
        "training.checkpoint_every": 1,
        "training.device": "cpu",
    }
    changes = " ".join(f"--set {key}={value}" for key, value in settings.items())
    broken = "mkfifo p; exec 4<>p 3>p 4>&-; "
    done = run(
        shell=f"{broken} $REGARD train tiny --tsv pairs.tsv --out run {changes} {closed}",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "report.html").exists()


def test_a_current_folder_that_is_gone_is_said_plainly(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    for command in ("recipe list", "info base", "translate run"):
        done = run(shell=f"mkdir -p {folder}; cd {folder}; rmdir {folder}; $REGARD {command}")
        assert (done.returncode, done.stdout) == (2, ""), command
        assert done.stderr == (
            "error: the current folder no longer exists\n  Change to another: cd FOLDER\n"
        )


def outcome(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    def fail() -> None:
        raise error

    code = run_guarded(fail)
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


def test_each_end_has_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_guarded(lambda: None) == 0
    mistake = RecipeError("wrong", where="here", hint="Mend it.")
    assert outcome(mistake, capsys) == (2, "error: here: wrong\n  Mend it.\n")
    assert outcome(PermissionError(13, "Permission denied", "a.txt"), capsys) == (
        2,
        "error: a.txt: Permission denied\n",
    )
    stopped = Interrupted("stopped at step 7", hint="regard train runs/x --resume")
    assert outcome(stopped, capsys) == (130, "stopped at step 7\n  regard train runs/x --resume\n")
    assert outcome(KeyboardInterrupt(), capsys) == (130, "interrupted\n")


def test_our_bug_exits_with_1_and_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (ZeroDivisionError("no"), FileNotFoundError(2, "No such file")):
        code, text = outcome(error, capsys)
        assert code == 1
        assert text.startswith("Traceback (most recent call last):\n")
        assert text.endswith("error: this is a bug in regard; please report the lines above\n")


def test_search_options_stand_for_decoding_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    class Commands:
        @staticmethod
        def translate(runs: list[Path], **options: Any) -> None:
            seen.update(options, runs=runs)

    monkeypatch.setitem(sys.modules, "regard.serving.commands", Commands)
    monkeypatch.setattr("regard.serving.commands", Commands, raising=False)
    both = {"n_best": 2, "no_repeat_ngram": 3, "min_tokens": 1, "max_tokens": 9}
    rest = "--n-best 2 --no-repeat-ngram 3 --min-tokens 1 --max-tokens 9"
    beam = "--beam 2 --alpha -1 --set decoding.coverage=0.2"
    sample = "--sample --temperature 0.5 --top-k 0 --top-p 0.9 --min-p 0 --seed 7"
    for options, expected in (
        (beam, DecodingConfig(beam=2, alpha=-1, coverage=0.2, **both)),
        (
            sample,
            DecodingConfig(
                method="sample", temperature=0.5, top_k=0, top_p=0.9, min_p=0, seed=7, **both
            ),
        ),
    ):
        seen.clear()
        line = f"translate a --ensemble b c {rest} {options} --prefix -Ja --input i --report r"
        assert main(line.split()) == 0
        assert seen.pop("runs") == [Path("a"), Path("b"), Path("c")]
        changed = load_recipe("base", seen.pop("overrides"), only=["decoding"]).decoding
        assert changed == expected
        assert {name: value for name, value in seen.items() if value is not None} == {
            "input": Path("i"),
            "prefix": "-Ja",
            "report": Path("r"),
            "engine": "auto",
            "shortlist": False,
        }


def test_data_options_stand_for_data_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    class Run:
        @staticmethod
        def train(recipe: Recipe, out: Path, **options: Any) -> None:
            seen.update(options, recipe=recipe, out=out)

        @staticmethod
        def resume(folder: Path, overrides: list[str]) -> None:
            seen.update(resumed=folder, overrides=overrides)

    monkeypatch.setitem(sys.modules, "regard.recipes.run", Run)
    line = (
        "train tiny --source a.en b.en --target a.de --target b.de "
        "--valid-source=dev.en --valid-target dev.de --dry-run --set training.max_steps=3"
    )
    assert main(line.split()) == 0
    recipe = seen["recipe"]
    assert recipe.data.source == ("a.en", "b.en")
    assert recipe.data.target == ("a.de", "b.de")
    assert (recipe.data.valid_source, recipe.data.valid_target) == ("dev.en", "dev.de")
    assert recipe.training.max_steps == 3
    assert (seen["out"], seen["dry_run"], seen["init"]) == (Path("runs/tiny"), True, None)
    assert main(["train", "runs/x", "--resume", "--set", "training.max_steps=9"]) == 0
    assert (seen["resumed"], seen["overrides"]) == (Path("runs/x"), ["training.max_steps=9"])


def test_text_options_stand_for_the_keys_of_their_family(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    class Run:
        @staticmethod
        def train(recipe: AnyRecipe, out: Path, **options: Any) -> None:
            seen.update(options, recipe=recipe, out=out)

        @staticmethod
        def finetune(recipe: AnyRecipe, out: Path, **options: Any) -> None:
            seen.update(options, recipe=recipe, out=out)

    monkeypatch.setitem(sys.modules, "regard.recipes.run", Run)
    line = "train gpt --text a.txt b.txt --text c.txt --valid-text d.txt"
    assert main(line.split()) == 0
    assert seen["recipe"].data.text == ("a.txt", "b.txt", "c.txt")
    assert seen["recipe"].data.valid_text == "d.txt"
    assert seen["out"] == Path("runs/gpt")
    line = "finetune bert --labels a.tsv b.tsv --valid-labels c.tsv --set training.seed=3"
    assert main(line.split()) == 0
    recipe = seen["recipe"]
    assert (recipe.labels.train, recipe.labels.valid) == (("a.tsv", "b.tsv"), "c.tsv")
    assert (recipe.init, recipe.training.seed, seen["epochs"]) == ("", 3, 4.0)
    assert not recipe.model.prediction_head
    assert seen["out"] == Path("runs/bert-labels")
    assert list(seen["given"]) == ["training.seed"]
    steps = ["--set", "training.max_steps=5"]
    assert main([*line.split(), *steps, "--out", "x"]) == 0
    assert list(seen["given"]) == ["training.seed", "training.max_steps"]
    assert seen["out"] == Path("x")
    assert seen["recipe"].training.max_steps == 5
    assert main([*line.split(), "--epochs", "2.5"]) == 0
    assert seen["epochs"] == 2.5


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tr", {"train", "translate"}),
        ("recipe s", {"show"}),
        ("translate --be", {"--beam"}),
        ("train b", {"base", "big", "bert-mini", "bert-base"}),
        ("train --set model.dr", {"model.dropout="}),
        ("translate --set decoding.be", {"decoding.beam="}),
        ("generate --set ge", {f"generation.{key}=" for key in GenerationConfig.model_fields}),
        ("translate --set m", set()),
        ("evaluate --set da", set()),
        ("info runs/d", {"runs/demo/"}),
        ("info my", {"my.toml"}),
    ],
)
def test_bash_completes(words: str, found: set[str], tmp_path: Path) -> None:
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "my.toml").touch()
    (tmp_path / "regard").write_text(f'#!/bin/sh\nexec {sys.executable} -m regard "$@"\n')
    (tmp_path / "regard").chmod(0o755)
    script = app.generate_completion(prog_name="regard", shell="bash")
    count = len(words.split())
    ask = (
        f'PATH="$PWD:$PATH"; COMP_WORDS=(regard {words}); COMP_CWORD={count}; '
        '_regard regard "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = run(shell=f"{script}\n{ask}", cwd=tmp_path)
    assert set(done.stdout.split()) == found, done.stderr


def test_a_vocabulary_of_ones_own_is_refused_with_init(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = ["train", "tiny", "--tsv", "a.tsv", "--init", str(tmp_path), "--set"]
    assert main([*line, "vocabulary.size=400"]) == 2
    assert capsys.readouterr().err == (
        "error: --set vocabulary.size: has no effect with --init: the vocabulary comes from "
        "that run\n"
    )
