"""The command line in a process of its own, and a run that it trained."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

WORDS = {
    "the light": "das Licht", "the door": "die Tür", "the window": "das Fenster",
    "the fan": "der Lüfter", "the lamp": "die Lampe", "the lock": "das Schloss",
    "is on": "ist an", "is off": "ist aus", "is open": "ist offen", "is closed": "ist zu",
    "now": "jetzt", "again": "wieder", "today": "heute", "not": "nicht", "always": "immer",
}  # fmt: skip


def pairs() -> list[tuple[str, str]]:
    """120 sentences and their translations."""
    things, states, times = list(WORDS)[:6], list(WORDS)[6:10], list(WORDS)[10:]
    return [
        (f"{thing} {state} {time}.", f"{WORDS[thing]} {WORDS[state]} {WORDS[time]}.")
        for thing in things
        for state in states
        for time in times
    ]


@dataclass(frozen=True)
class Trained:
    """A run, what its training said, and the text it was validated on."""

    run: Path
    out: str
    err: bytes
    source: Path
    target: Path


def regard_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "regard", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "REGARD": f"{sys.executable} -m regard"}


def call(arguments: Sequence[object], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        regard_command(*arguments),
        input=stdin,
        capture_output=True,
        env=environment(),
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """`regard train tiny`, from two text files to a run folder."""
    folder = tmp_path_factory.mktemp("trained")
    lines = pairs()
    for name, part in (("train", lines[:100]), ("dev", lines[100:])):
        for side, ending in enumerate(("en", "de")):
            path = folder / f"{name}.{ending}"
            path.write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
    done = call(
        [
            "train", "tiny", "--out", folder / "run",
            "--source", folder / "train.en", "--target", folder / "train.de",
            "--valid-source", folder / "dev.en", "--valid-target", folder / "dev.de",
            "--set", "training.max_steps=30", "--set", "training.checkpoint_every=10",
            "--set", "vocabulary.size=300", "--set", "decoding.max_extra_tokens=4",
            "--set", "training.precision=float32",
        ]
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return Trained(
        folder / "run", done.stdout.decode(), done.stderr, folder / "dev.en", folder / "dev.de"
    )
