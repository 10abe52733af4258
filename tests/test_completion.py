"""Completion for other shells than the one that can be tried out here, and its installation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import app

COMMANDS = (
    "demo", "train", "translate", "evaluate", "score", "average", "info", "doctor", "recipe",
)  # fmt: skip
PLACES = {
    "bash": ".local/share/bash-completion/completions/regard",
    "zsh": ".zsh/completions/_cyclopts_regard",
    "fish": ".config/fish/completions/regard.fish",
}


def offers(shell: str, command: str) -> str:
    """How a script offers a command, by a word that stands for it alone."""
    return {"zsh": f"'{command}:", "fish": f"-a '{command}'", "bash": command}[shell]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_script_offers_every_command_and_option(shell: str) -> None:
    script = app.generate_completion(prog_name="regard", shell=shell)
    for command in (*COMMANDS, "list", "show"):
        assert offers(shell, command) in script, command
    dashes = "" if shell == "fish" else "--"
    for option in ("valid-source", "n-best", "set", "dry-run"):
        assert f"{dashes}{option}" in script, option
    checker = shutil.which(shell)
    if checker is not None:
        done = subprocess.run([checker, "-n"], input=script, text=True, check=False)
        assert done.returncode == 0


@pytest.mark.parametrize("shell", PLACES)
def test_install_completion_writes_into_the_home_and_says_where(shell: str, tmp_path: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_VERSION") and not name.startswith(("ZSH", "XDG"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "regard", "--install-completion", "--shell", shell],
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    place = tmp_path / PLACES[shell]
    assert str(place) in done.stdout
    script = place.read_text(encoding="utf-8")
    assert script == app.generate_completion(prog_name="regard", shell=shell)
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    start = {"bash": {".bashrc"}, "zsh": {".zshrc"}, "fish": set()}[shell]
    assert written == {place.name} | start
    for name in start:
        assert str(place.parent) in (tmp_path / name).read_text(encoding="utf-8")
