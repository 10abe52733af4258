"""The `regard` command, and `python -m regard`: answers signals before anything else is loaded."""

import sys

from regard.signals import interruptible


def main() -> int:
    """Run the command that the process was given, and return its exit code."""
    try:
        with interruptible():
            from regard.cli import main as run  # noqa: PLC0415 - a signal may come while it loads

            return run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
