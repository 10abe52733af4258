"""The `regard` command, and `python -m regard`: answers signals before anything else is loaded."""

import os
import sys

from regard.signals import interruptible, load

# ruff: noqa: PLC0415 - a signal may come while these load


def main() -> int:
    """Run the command that the process was given, and return its exit code."""
    try:
        with interruptible(to_the_end=True):
            load("regard.streams")
            return _run()
    except KeyboardInterrupt:
        from regard.streams import let_go, open_missing, say

        open_missing()
        say("interrupted")
        let_go()
        return 130


def _run() -> int:
    from regard.streams import let_go, open_missing, say

    open_missing()
    try:
        os.getcwd()  # noqa: PTH109 - amid an import of torch the lack of it is fatal
    except FileNotFoundError:
        say("error: the current folder no longer exists\n  Change to another: cd FOLDER")
        return 2
    try:
        from regard.cli import main as run

        return run()
    finally:
        let_go()


if __name__ == "__main__":
    sys.exit(main())
