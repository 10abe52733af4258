"""A checkpoint that was cut or changed is always seen, and the one before is used."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.weights.checkpoints import checkpoint_steps, latest_checkpoint

TRUNCATIONS = 64
FLIPS = 2000


def cut(data: bytes, generator: random.Random) -> bytes:
    return data[: generator.randrange(len(data))]


def flipped(data: bytes, generator: random.Random) -> bytes:
    changed = bytearray(data)
    changed[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    return bytes(changed)


@pytest.fixture
def run(whole: object, tmp_path: Path) -> Path:
    """The newest two checkpoints of a real training, in a folder of their own."""
    path = tmp_path / "run"
    shutil.copytree(whole.folder / "whole", path)
    return path


@pytest.mark.parametrize(
    ("damage", "times"), [(cut, TRUNCATIONS), (flipped, FLIPS)], ids=["cut", "flipped"]
)
def test_every_damage_of_the_newest_checkpoint_is_said_and_the_one_before_is_used(
    run: Path, damage: Callable[..., bytes], times: int
) -> None:
    *_, before, newest = checkpoint_steps(run)
    folder = run / f"checkpoints/step-{newest:08d}"
    contents = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    # As often as a file is long: where a disk breaks is not chosen by file.
    weights = [len(data) for data in contents.values()]
    generator = random.Random(3)
    chosen = [*contents, *generator.choices(list(contents), weights, k=times - len(contents))]
    for path in chosen:
        path.write_bytes(damage(contents[path], generator))
        said: list[str] = []
        found = latest_checkpoint(run, said.append)
        assert found is not None
        assert found.step == before
        (words,) = said
        assert words.startswith(f"{path}: ")
        assert words.endswith(f"; the checkpoint of step {newest} is passed over")
        path.write_bytes(contents[path])
    undamaged = latest_checkpoint(run, print)
    assert undamaged is not None
    assert undamaged.step == newest


def test_going_on_from_the_checkpoint_before_a_damaged_one_ends_with_the_same_weights(
    whole: object, train: Callable[..., int]
) -> None:
    run = whole.folder / "damaged"
    shutil.copytree(whole.folder / "whole", run)
    newest = checkpoint_steps(run)[-1]
    path = run / f"checkpoints/step-{newest:08d}/optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert train(whole, "damaged") == 0
    assert f"{path}: the file is damaged" in whole.said
    assert f"the checkpoint of step {newest} is passed over" in whole.said
    assert whole.weights_sum("damaged") == whole.weights_sum("whole")
