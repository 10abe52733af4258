"""Every error that a user can cause: where it is, what was wanted, what came, what to do."""

import shlex
from pathlib import Path


def command(*words: object) -> str:
    """A `regard` command to type, quoted for the shell: `command("translate", run)`.

    A `Path` that looks like an option begins with `./`. What is typed where a recipe's name may
    stand is for `regard.recipes.names.typed`.
    """
    return shlex.join(["regard", *map(_typed, words)])


def _typed(word: object) -> str:
    text = str(word)
    return f"./{text}" if isinstance(word, Path) and text.startswith("-") else text


class RegardError(Exception):
    """The family of errors that a user can cause and mend; the command line exits with 2.

    Args:
        problem: what was wanted and what came, in one plain sentence.
        where: the file, line, key or option that it is about.
        hint: what to do about it.
    """

    exit_code = 2

    def __init__(self, problem: str, *, where: str = "", hint: str = "") -> None:
        self.problem = problem
        self.where = where
        self.hint = hint
        super().__init__(problem)

    def __str__(self) -> str:
        head = f"{self.where}: {self.problem}" if self.where else self.problem
        return f"{head}\n  {self.hint}" if self.hint else head


class RecipeError(RegardError):
    """A recipe, or an option that changes it, has an unknown key, a wrong type or a bad value."""


class DataError(RegardError):
    """A text file is missing, empty, not UTF-8, or does not match its partner line by line."""


class RunFolderError(RegardError):
    """A run folder is missing, incomplete, damaged, in use, or not what the command needs."""


class ModelError(RegardError):
    """A model cannot honour what is asked of it: a length, a vocabulary, a kind of attention."""


class NotFiniteError(ModelError):
    """What a model answers is not a number, or infinite: it is damaged, or diverged in training."""

    def __init__(self, *, infinite: bool = False) -> None:
        super().__init__(
            "the model's output is not a number (NaN)" + (", or infinite" if infinite else ""),
            hint="its weights are damaged, or it diverged in training",
        )


class CheckpointError(RegardError):
    """A checkpoint from elsewhere is missing, damaged, or holds what no model here can honour."""


class DivergenceError(RegardError):
    """Training met a loss, a gradient or an answer of its model that is not a finite number."""


class ElsewhereError(RegardError):
    """Another process of the same training could not go on, and says itself why."""


class Interrupted(RegardError):  # noqa: N818 - it is not a fault
    """The user stopped the work (Ctrl-C, SIGTERM or SIGHUP) and what was done is saved."""

    exit_code = 130
