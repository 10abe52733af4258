"""Lets `python -m regard` stand in for the `regard` command."""

import sys

from regard.cli import main

if __name__ == "__main__":
    sys.exit(main())
