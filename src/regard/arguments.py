"""What a call from Python is given, looked at before anything is done with it."""

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import TypeVar

from regard.errors import RegardError

Value = TypeVar("Value")


def shown(value: object) -> str:
    """A value for an error, cut where it is long; what is no plain value, by its class."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:40]}..."
    if isinstance(value, (list, tuple, dict, set)) and not value:
        return f"an empty {type(value).__name__}"
    return f"a {type(value).__name__}"


def whole_number(
    value: object, name: str, *, least: int | None = None, most: int | None = None, hint: str = ""
) -> int:
    """The value as an int: one, or a number of NumPy's; True is none, and neither is 2.0.

    Args:
        value: what was given.
        name: what it is called in an error.
        least: the smallest that is right.
        most: the largest.
        hint: what to do where it is wrong.

    Raises:
        RegardError: it is no whole number, or out of bounds.
    """
    number = _index(value)
    if (
        number is None
        or (least is not None and number < least)
        or (most is not None and number > most)
    ):
        bounds = "" if least is None else f" of at least {least:,}"
        if least is not None and most is not None:
            bounds = f" from {least:,} to {most:,}"
        raise RegardError(
            f"expected a whole number{bounds}, got {shown(value)}", where=name, hint=hint
        )
    return number


def _index(value: object) -> int | None:
    """A whole number of any class, as Python's; None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def plain_numbers(options: Mapping[str, object]) -> dict[str, object]:
    """The same options, with Python's own numbers in the place of NumPy's."""
    found = dict(options)
    for name, value in options.items():
        if isinstance(value, (bool, int, float)):
            continue
        number = _index(value)
        if number is not None:
            found[name] = number
        elif isinstance(value, Real):
            found[name] = float(value)
    return found


def path_of(value: object, name: str, *, hint: str = "") -> Path:
    """The value as a path: a string or a path.

    Raises:
        RegardError: it is neither.
    """
    if not isinstance(value, (str, os.PathLike)) or isinstance(os.fspath(value), bytes):
        raise RegardError(
            f"expected a path as a string or pathlib.Path, got {shown(value)}",
            where=name,
            hint=hint,
        )
    return Path(value)


def items_of(values: Iterable[Value], name: str, wanted: str) -> list[Value]:
    """The values of any iterable but a string or bytes, which nobody wants letter by letter.

    Args:
        wanted: what they should be, in words: "a list of strings".

    Raises:
        RegardError: it is no such iterable.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise RegardError(f"expected {wanted}, got {shown(values)}", where=name)
    return list(values)


def require(
    value: object, kinds: type | tuple[type, ...], name: str, wanted: str, *, hint: str = ""
) -> None:
    """Refuse a value that is of none of these classes.

    Raises:
        RegardError: says what was wanted.
    """
    if not isinstance(value, kinds):
        raise RegardError(f"expected {wanted}, got {shown(value)}", where=name, hint=hint)


def require_teller(first: object, name: str, warn: Callable[[str], None] | None) -> None:
    """Refuse what a call can't number lines from, and what it can't tell anything.

    Raises:
        RegardError: `first`, called `name`, is no whole number, or `warn` is no function.
    """
    whole_number(first, name)
    if warn is not None and not callable(warn):
        raise RegardError(f"expected a function of a string, got {shown(warn)}", where="warn")
