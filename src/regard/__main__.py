"""The `regard` command, and `python -m regard`: answers signals before anything else is loaded."""

import os
import sys

from regard.signals import interruptible
from regard.streams import let_go, open_missing, say


def main() -> int:
    """Run the command that the process was given, and return its exit code."""
    open_missing()
    try:
        return _run()
    finally:
        let_go()


def _run() -> int:
    try:
        os.getcwd()  # noqa: PTH109 - amid an import of torch the lack of it is fatal
    except FileNotFoundError:
        say("error: the current folder no longer exists\n  Change to another: cd FOLDER")
        return 2
    try:
        with interruptible():
            from regard.cli import main as run  # noqa: PLC0415 - a signal may come while it loads

            return run()
    except KeyboardInterrupt:
        say("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
