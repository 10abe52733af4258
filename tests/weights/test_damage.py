"""Damage is always seen: every truncation and every flipped bit, of every file."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.errors import RunFolderError
from regard.weights.checkpoints import Checkpoint
from regard.weights.run_folder import RunFolder

RUN_FILES = ["manifest.json", "recipe.toml", "tokenizer.json", "model.safetensors"]
CHECKPOINT_FILES = ["manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]
TRUNCATIONS = 64
FLIPS = 500

Break = Callable[[bytes, random.Random], list[bytes]]


def truncated(data: bytes, generator: random.Random) -> list[bytes]:
    lengths = {0, len(data) - 1, *(generator.randrange(len(data)) for _ in range(TRUNCATIONS - 2))}
    return [data[:length] for length in lengths]


def flipped(data: bytes, generator: random.Random) -> list[bytes]:
    broken = []
    for _ in range(FLIPS):
        copy = bytearray(data)
        copy[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        broken.append(bytes(copy))
    return broken


@pytest.mark.parametrize("break_it", [truncated, flipped], ids=["truncated", "flipped"])
@pytest.mark.parametrize("name", RUN_FILES)
def test_a_broken_file_of_a_run_is_always_named(run_path: Path, name: str, break_it: Break) -> None:
    path = run_path / name
    data = path.read_bytes()
    for broken in break_it(data, random.Random(1)):
        path.write_bytes(broken)
        with pytest.raises(RunFolderError) as caught:
            RunFolder.open(run_path)
        assert caught.value.where == str(path)
    path.write_bytes(data)
    RunFolder.open(run_path)


@pytest.mark.parametrize("break_it", [truncated, flipped], ids=["truncated", "flipped"])
@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_a_broken_file_of_a_checkpoint_is_always_named(
    run_path: Path, name: str, break_it: Break
) -> None:
    checkpoint = Checkpoint(run_path / "checkpoints" / "step-00000002", 2)
    path = checkpoint.path / name
    data = path.read_bytes()
    for broken in break_it(data, random.Random(2)):
        path.write_bytes(broken)
        assert checkpoint.damage().startswith(f"{path}: ")
    path.write_bytes(data)
    assert checkpoint.damage() == ""
