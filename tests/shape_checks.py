"""The type checker that jaxtyping puts on every function of regard in the test run."""

from collections.abc import Callable
from typing import Any

from beartype import beartype
from beartype.roar import BeartypeDecorHintPep673Exception


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its arguments and result checked at every call.

    A method annotated with `Self` is returned as it is: beartype checks those only on a whole
    class, and jaxtyping decorates functions.
    """
    try:
        return beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function
