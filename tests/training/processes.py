"""Some forked processes that train together, and what each of them came to."""

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from regard.training.processes import Processes, connected

# What the children import on their way, so that no child has to.
for name in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor",
             "sacrebleu", "torch.utils.tensorboard"):  # fmt: skip
    with suppress(ImportError):
        import_module(name)


def together(count: int, work: Callable[[Processes], Any]) -> list[Any]:
    """Do `work` in each of so many processes; return what it gave, or the error's text.

    One that was killed gives None.
    """
    with tempfile.TemporaryDirectory() as folder:
        children = [_start(Path(folder), rank, count, work) for rank in range(count)]
        for child in children:
            os.waitpid(child, 0)
        found = [Path(folder) / f"made-{rank}" for rank in range(count)]
        return [pickle.loads(path.read_bytes()) if path.exists() else None for path in found]


def _start(folder: Path, rank: int, count: int, work: Callable[[Processes], Any]) -> int:
    child = os.fork()
    if child:
        return child
    with suppress(BaseException):
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        try:
            store = distributed.FileStore(str(folder / "store"), count)
            with connected(store, rank, count) as processes:
                made = work(processes)
        except BaseException as error:
            made = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        aside = folder / f"aside-{rank}"
        aside.write_bytes(pickle.dumps(made))
        aside.rename(folder / f"made-{rank}")
    os._exit(0)
