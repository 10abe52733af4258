"""What the environment asks for, refused before any work is done if it is not there."""

import os

from regard.engine import native
from regard.environment import KERNELS, MALLOC, switched_on


def require_environment() -> None:
    """Check REGARD_KERNELS, REGARD_MALLOC and REGARD_ISA, without waiting for torch.

    Raises:
        RegardError: a switch is neither `on` nor `off`.
        EngineError: REGARD_ISA asks for instructions that are not there.
    """
    for variable in (KERNELS, MALLOC):
        switched_on(variable)
    if os.environ.get("REGARD_ISA") and native.available():
        native.isa()
