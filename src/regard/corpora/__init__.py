"""The text that comes with the package; whose it is, and its licence, stand in NOTICE beside it."""

from pathlib import Path

HOME_ASSISTANT_EN_DE = Path(__file__).parent / "home-assistant.en-de.tsv.xz"
