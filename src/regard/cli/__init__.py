"""The command line: parses, calls and prints; the work is done in the rooms that it calls."""

import sys
from collections.abc import Callable, Sequence
from inspect import Parameter as Argument
from pathlib import Path

from cyclopts import App, Parameter

import regard
from regard.cli.comparison import compare
from regard.cli.encoding import classify, embed, fill
from regard.cli.exchange import export, import_, quantize, shortlist
from regard.cli.generation import generate
from regard.cli.inspection import doctor, info, list_recipes, show
from regard.cli.training import average, demo, finetune, merge, train
from regard.cli.translation import evaluate, score, translate
from regard.exits import run_guarded

# Only what a command needs is imported, inside the command: --help must not wait for torch.

# Every command, in the order in which --help names them.
COMMANDS: list[Callable[..., None]] = [
    demo, train, finetune, translate, evaluate, score, generate,
    embed, classify, fill, average, merge, import_, export, quantize, shortlist, compare,
    info, doctor,
]  # fmt: skip

# What only reports takes the environment as it is; all else refuses what it can't honour.
_WORKING = {made.__name__.strip("_") for made in COMMANDS if made not in (info, doctor)}

app = App(
    name="regard",
    help="Trains a Transformer on raw text, and works with it.",
    version=regard.__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
    suppress_keyboard_interrupt=False,
    result_action="return_none",
)
app.register_install_completion_command(
    help="Install completion for this shell (bash, zsh, fish), and say where.",
    result_action="return_none",
)
for place, command in enumerate(COMMANDS, 1):
    app.command(command, sort_key=place)
recipe_app = App(
    name="recipe", help="List the recipes, or write one out.", sort_key=len(COMMANDS) + 1
)
recipe_app.command(list_recipes, name="list")
recipe_app.command(show)
app.command(recipe_app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, that of the process if none is given, and return its exit code."""
    tokens = sys.argv[1:] if arguments is None else list(arguments)
    return run_guarded(lambda: _call(tokens))


def _call(tokens: list[str]) -> None:
    if any(token.rpartition("=")[2] == "" for token in tokens):
        _refuse_empty_paths(tokens)
    if tokens and tokens[0] in _WORKING and not {"-h", "--help"} & set(tokens):
        from regard.recipes.environment import require_environment

        require_environment()
    app(tokens, print_error=False, exit_on_error=False)


def _refuse_empty_paths(tokens: list[str]) -> None:
    """Refuse "" for a path, which Python takes for the current folder."""
    from regard.errors import RegardError

    _, bound, _ = app.parse_args(tokens, print_error=False, exit_on_error=False)
    if any(token.rpartition("=")[2] in {".", "./"} for token in tokens):
        return
    for name, value in bound.arguments.items():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Path) and each == Path():
                kind = bound.signature.parameters[name].kind
                option = "--" + name.strip("_").replace("_", "-")
                where = name.upper() if kind is Argument.POSITIONAL_ONLY else option
                raise RegardError('expected a path, got ""', where=where)
