"""Several processes that train one model together: who this one is, and what they agree on."""

import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import distributed, nn

from regard.counts import counted
from regard.errors import ElsewhereError, RegardError, command
from regard.shapes import Tensor

Made = TypeVar("Made")

# How long a process waits for the others inside a step before it takes them for lost.
_PATIENCE: Final = timedelta(minutes=5)
_PAUSE: Final = 0.02
# What torch's RuntimeErrors say when another process is gone, by what carries the messages.
_GONE: Final = ("gloo", "connection", "nccl", "timed out", "timeout", "broken pipe")

# Whether each pass sends the buffers around: torch 2.13's word for it, or the older one.
_BUFFERS: Final = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(nn.parallel.DistributedDataParallel).parameters
)


class Processes:
    """The processes of a training; alone by default, where nothing is ever sent or waited for.

    What takes long (to prepare text, to validate) the main process does, while the others wait
    for word of it; all else every process does alike, and so all take the same decisions.
    """

    def __init__(self, rank: int = 0, count: int = 1, store: Any = None) -> None:  # noqa: ANN401
        self.rank = rank
        self.count = count
        self._store = store
        self._words = 0

    @property
    def main(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def from_main(self, make: Callable[[], Made]) -> Made:
        """What `make` gives in the main process, of JSON values; all processes get it.

        Raises:
            ElsewhereError: in the other processes, where `make` raised an error.
        """
        if self.count == 1:
            return make()
        self._words += 1
        key = f"word-{self._words}"
        if not self.main:
            return self._hear(key)  # type: ignore[no-any-return]
        try:
            made = make()
        except BaseException as error:
            self._store.set(key, json.dumps({"error": str(error) or type(error).__name__}))
            raise
        self._store.set(key, json.dumps({"value": made}))
        return made

    def after_main(self, make: Callable[[], Made]) -> Made:
        """What `make` gives here, once it has given something in the main process.

        Raises:
            ElsewhereError: in the other processes, where `make` raised an error in the main one.
        """
        if not self.main:
            self.from_main(lambda: None)
            return make()
        made: list[Made] = []
        self.from_main(lambda: made.append(make()))
        return made[0]

    def total(self, here: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.count > 1:
            distributed.all_reduce(here)
        return here

    def any(self, here: bool) -> bool:
        """Whether it is so in any process."""
        if self.count == 1:
            return here
        flag = torch.tensor(int(here))  # on the CPU: no GPU is waited for
        distributed.all_reduce(flag)
        return bool(flag)

    def wrapped(
        self, model: nn.Module, device: torch.device, *, unused: bool, cut: bool = False
    ) -> nn.Module:
        """A module that averages gradients over all processes; the module itself where alone.

        Args:
            model: a module on its device.
            device: that device.
            unused: whether it has weights that its loss does not use.
            cut: whether each process keeps but its share of the weights.
        """
        if self.count == 1:
            return model
        if cut:
            # What few trainings need is not imported for all.
            from regard.training.sharding import shard  # noqa: PLC0415

            shard(model, device, self.count)
            return model
        # Buffers are alike everywhere, and no pass changes them.
        still: dict[str, Any] = {_BUFFERS: False}
        return nn.parallel.DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            **still,
            gradient_as_bucket_view=True,
            find_unused_parameters=unused,
        )

    def lost(self, error: RuntimeError) -> bool:
        """Whether an error says that another process has ended or does not answer."""
        said = str(error).lower()
        return self.count > 1 and any(word in said for word in _GONE)

    def _hear(self, key: str) -> Any:  # noqa: ANN401 - any JSON value
        # Not a wait inside the store, which no signal would end.
        while not self._store.check([key]):
            time.sleep(_PAUSE)
        said = json.loads(self._store.get(key))
        if "error" in said:
            raise ElsewhereError(f"process 0 could not go on: {said['error']}")
        return said["value"]


ALONE: Final = Processes()


@contextmanager
def joined() -> Iterator[Processes]:
    """The processes that torchrun started with this one, until the block ends.

    Where it was started in another way, it is alone.

    Raises:
        RegardError: the others can't be reached.
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in names) or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    # Some builds of torch have no part of this, and most trainings need none.
    from torch.distributed.rendezvous import rendezvous  # noqa: PLC0415

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=_PATIENCE)))
    except (RuntimeError, ValueError) as error:
        raise RegardError(
            f"the other processes can't be reached: {error}",
            where="torchrun",
            hint="Start them all by torchrun; docs/scaling.md has the commands.",
        ) from error
    with connected(store, rank, count) as processes:
        yield processes


@contextmanager
def connected(store: Any, rank: int, count: int) -> Iterator[Processes]:  # noqa: ANN401
    """Process `rank` of `count`, which meet in one of torch's stores, until the block ends.

    Tensors on GPUs travel by NCCL, those on CPUs by gloo.
    """
    from torch.distributed.distributed_c10d import PrefixStore  # noqa: PLC0415

    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=PrefixStore("group", store),
        rank=rank,
        world_size=count,
        timeout=_PATIENCE,
    )
    yield Processes(rank, count, PrefixStore("words", store))
    # Only at a good end: where another process is lost, this would wait for it.
    distributed.destroy_process_group()


def left_alone(step: int, run: Path) -> RegardError:
    """The error where another process has ended or does not answer."""
    return RegardError(
        f"another process has ended or does not answer, at step {step}",
        where="training",
        hint="Go on from the last checkpoint: torchrun ... -m " + command("train", run, "--resume"),
    )


def require_own_gpu(device: torch.device) -> None:
    """Refuse to let two processes share a GPU.

    Raises:
        RegardError: there are more processes on this machine than GPUs.
    """
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.type == "cuda" and here > torch.cuda.device_count():
        raise RegardError(
            f"there are {here} processes on this machine and "
            f"{counted(torch.cuda.device_count(), 'GPU')}",
            where="training.device",
            hint='Start one process a GPU (--nproc-per-node), or set device = "cpu".',
        )
