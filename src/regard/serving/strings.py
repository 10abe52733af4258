"""What a call from Python is given: strings that UTF-8 can hold, and options that there are."""

import difflib
from collections.abc import Iterable, Mapping
from typing import cast

from regard.errors import DataError, RegardError


def refuse_unknown(options: Mapping[str, object], known: Iterable[str], where: str) -> None:
    """Refuse an option that a call does not have.

    Args:
        options: what was given, by name.
        known: the names of the options that there are.
        where: what the call is named in an error.

    Raises:
        RegardError: names the nearest, or all.
    """
    names = list(known)
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            asked = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(names)}"
            raise RegardError(f"unknown option {name}; {asked}", where=where)


def checked_strings(lines: Iterable[str], name: str) -> list[str]:
    """The lines, all of them strings that UTF-8 can hold.

    Args:
        name: what they are called in an error.

    Raises:
        DataError: it is no list of strings, or one can't be encoded; says which.
    """
    if isinstance(lines, str):
        raise DataError(f'expected a list of strings, got one; write ["{lines[:20]}"]', where=name)
    texts = cast(list[str], listed(lines, name, "a list of strings"))
    for place, text in enumerate(texts):
        checked_string(text, f"{name}[{place}]")
    return texts


def checked_string(text: str, name: str) -> str:
    """The string, which UTF-8 can hold.

    Args:
        name: what it is called in an error.

    Raises:
        DataError: it is no string, or can't be encoded.
    """
    if not isinstance(text, str):
        raise DataError(f"expected a string, got {type(text).__name__}", where=name)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"character {error.start} is half of a surrogate pair "
            f"(U+{ord(text[error.start]):04X}), which UTF-8 cannot hold",
            where=name,
            hint='Read text with errors="replace", or mend it where it comes from.',
        ) from None
    return text


def checked_argument(text: str, option: str) -> str:
    """What was typed on a command line, which is UTF-8; Python has half pairs for other bytes.

    Raises:
        DataError: it is not; names the option.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"character {error.start + 1} is not valid UTF-8",
            where=option,
            hint="Type the text in UTF-8.",
        ) from None
    return text


def listed(values: Iterable[object], name: str, wanted: str) -> list[object]:
    """The values of any iterable but a string."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise DataError(f"expected {wanted}, got {type(values).__name__}", where=name)
    return list(values)
