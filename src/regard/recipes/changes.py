"""What a change of a recipe was typed as, so that an error names that."""

from collections.abc import Iterable


class Change(str):
    """`key=value`, or the dotted key alone, with the option that it was typed as, if not `--set`.

    Args:
        text: the change, or its key.
        option: such as `--temperature`, which stands for the key; empty for `--set`.
    """

    __slots__ = ("option",)

    option: str

    def __new__(cls, text: str, option: str = "") -> "Change":
        """The text, which is a string like any other."""
        made = super().__new__(cls, text)
        made.option = option
        return made


def option_of(change: str) -> str:
    """The option that a change was typed as; an empty string for `--set`."""
    return change.option if isinstance(change, Change) else ""


def shown_together(keys: Iterable[str]) -> str:
    """The changed keys as they were typed: `--beam, --set decoding.alpha, decoding.n_best`."""
    keys = list(keys)
    options = [option_of(key) for key in keys if option_of(key)]
    plain = [key for key in keys if not option_of(key)]
    return ", ".join(options + ([f"--set {', '.join(plain)}"] if plain else []))
