"""Numbers on the command line: every option that takes one refuses what is none of its kind."""

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from regard.cli import app, main


def commands(group: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    """Every command with the words that it is called by."""
    if group.default_command is not None and words:
        yield words, group
    for name in group:
        if not name.startswith("-"):
            yield from commands(group[name], (*words, name))


def takes(annotation: object, kind: type) -> bool:
    """Whether an annotation has this type somewhere; a boolean is no whole number."""
    if annotation is kind:
        return True
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return False
    return any(takes(part, kind) for part in parts)


def options(kind: type) -> Iterator[tuple[list[str], str]]:
    """Every option of this kind: a command with all that it requires, and the option."""
    for words, command in commands(app):
        function = command.default_command
        assert function is not None
        required, found = list(words), []
        arguments = {
            one.field_info.name: one.name for one in command.assemble_argument_collection()
        }
        for name, parameter in inspect.signature(function).parameters.items():
            if takes(parameter.annotation, kind):
                found.append(arguments[name])
            elif "required=True" in str(parameter.annotation) or (
                parameter.default is parameter.empty
            ):
                only = parameter.kind is parameter.POSITIONAL_ONLY
                required += ["x"] if only else [arguments[name], "x.npy"]
        for option in found:
            yield required, option


WHOLE = [(" ".join(line), option) for line, option in options(int)]
REAL = [(" ".join(line), option) for line, option in options(float)]


def test_all_options_that_take_a_number_are_found() -> None:
    assert {("translate x", "--beam"), ("compare", "--seed"), ("fill x x", "--top")} <= set(WHOLE)
    assert {("average x", "--steps"), ("average x", "--last")} <= set(WHOLE)
    assert {line.split()[0] for line, option in WHOLE if option == "--threads"} == {
        "translate", "evaluate", "score", "generate", "embed", "classify", "fill", "compare",
    }  # fmt: skip
    assert {("demo", "--minutes"), ("translate x", "--alpha")} <= set(REAL)


@pytest.mark.parametrize("given", ["1.5", "2.0", "-0.5", "1e3", "nan", "inf", "two", ""])
@pytest.mark.parametrize(("line", "option"), WHOLE)
def test_what_is_no_whole_number_is_refused(
    line: str, option: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*line.split(), f"{option}={given}"]) == 2
    out, err = capsys.readouterr()
    problem = f'expected a whole number, got "{given}"'
    assert (out, err) == ("", f"error: Invalid value for {option}: {problem}\n")


@pytest.mark.parametrize(("line", "option"), WHOLE + REAL)
def test_what_no_number_can_be_is_refused(
    line: str,
    option: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the option's name, or, where the number is in order, as there is no run x."""
    monkeypatch.chdir(tmp_path)
    words = line.split()
    for given in ("-1", "0", str(10**9), str(2**63), str(10**30), "9" * 5000):
        if (line, option) == ("compare", "--seed") and given in {"0", str(10**9)}:
            continue  # nothing is wrong with that one
        code = main([*words, f"{option}={given}"])
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), (option, given)
        assert option in err or err.startswith("error: x: "), err
        assert len(err) < 400, err
