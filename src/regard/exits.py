"""How a command ends: the error text and the exit code for everything that can go wrong."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import TextIO, cast

from cyclopts import CycloptsError

from regard.errors import (
    DivergenceError,
    ElsewhereError,
    Interrupted,
    RecipeError,
    RegardError,
)
from regard.signals import interruptible
from regard.streams import Results, say

DONE = 0
BUG = 1
MISTAKE = 2
INTERRUPTED = 130

# What the machine refuses is for the user to mend; any other OSError that gets here is our bug.
_REFUSALS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EISDIR,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


# What all processes of a training meet alike.
_SAID_ONCE = (CycloptsError, DivergenceError, ElsewhereError, Interrupted, RecipeError)


_OUT_OF_MEMORY = (
    "the machine has not the memory that this needs\n"
    "  Train with a smaller training.batch_tokens or a larger training.accumulate, or choose a "
    "smaller model; use a model on fewer or shorter texts at once."
)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; PyTorch is not imported to ask for its own errors."""
    of_torch = type(error).__name__ == "OutOfMemoryError"
    on_cpu = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError) or of_torch or on_cpu


def run_guarded(command: Callable[[], object]) -> int:
    """Run a command to its end, and return the exit code of the process.

    0 done, 2 the user's mistake, 1 our bug, 130 interrupted, by Ctrl-C, SIGTERM or SIGHUP. Errors
    go to standard error, if it takes them; the code is the same if not. A reader of the results
    that went away (`| head -1`) is no mistake: the command ends quietly with 0.
    """
    with interruptible():
        return _guarded(command)


def _guarded(command: Callable[[], object]) -> int:
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        # Results are UTF-8 whatever the locale says, and a path that is not stays as it is.
        stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    sys.stdout = cast(TextIO, Results.around_standard_output())
    try:
        return _run(command)
    except (BrokenPipeError, SystemExit):  # rich, which prints the help, exits on a broken pipe
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        sys.stdout = stdout


def _run(command: Callable[[], object]) -> int:
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        text, code = "interrupted", INTERRUPTED
    except Exception as error:
        text, code = _verdict(error)
        text = _of_process(text, error)
    else:
        return DONE
    if text:
        say(text)
    return code


def _of_process(text: str, error: Exception) -> str:
    """What a process of several says: with its rank, and not what the first one says for all."""
    rank = os.environ.get("RANK", "0")
    if rank == "0" or os.environ.get("WORLD_SIZE", "1") == "1":
        return text
    if isinstance(error, _SAID_ONCE):
        return ""
    return "\n".join(f"[rank {rank}] {line}" for line in text.splitlines())


def _verdict(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code for it."""
    match error:
        case Interrupted():
            return str(error), error.exit_code
        case RegardError():
            return f"error: {error}", error.exit_code
        case CycloptsError():
            return f"error: {str(error).strip()}", MISTAKE
        case OSError() if error.errno in _REFUSALS:
            place = "a file, it is not known which" if error.filename is None else error.filename
            return f"error: {place}: {error.strerror}", MISTAKE
        case _ if _is_out_of_memory(error):
            return f"error: {_OUT_OF_MEMORY}", MISTAKE
        case _:
            report = "".join(traceback.format_exception(error))
            return f"{report}error: this is a bug in regard; please report the lines above", BUG
