"""The switches that the environment may hold: REGARD_KERNELS and REGARD_MALLOC, `on` or `off`."""

import os
from typing import Final

from regard.errors import RegardError

KERNELS: Final = "REGARD_KERNELS"
MALLOC: Final = "REGARD_MALLOC"
_WORDS: Final = {"": True, "on": True, "off": False}


def switched_on(variable: str) -> bool:
    """What a switch says; by default it is on.

    Raises:
        RegardError: it is neither `on` nor `off`.
    """
    word = os.environ.get(variable, "")
    if word not in _WORDS:
        raise RegardError(
            f'it is "{word}", expected on or off', where=variable, hint="Unset it, and it is on."
        )
    return _WORDS[word]
