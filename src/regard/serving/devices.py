"""Where PyTorch computes, and on how many threads."""

import torch

from regard.errors import RegardError
from regard.training.devices import choose_device


def prepare_device(wanted: str, threads: int | None) -> torch.device:
    """As `find_device`; and use so many CPU threads, in the whole process, if it is said.

    Raises:
        As `find_device`.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    return find_device(wanted)


def find_device(wanted: str) -> torch.device:
    """The device for `auto`, `cpu`, `cuda` or `cuda:1`.

    Raises:
        RegardError: it is none of these, or this machine does not have it.
    """
    if wanted == "auto":
        return choose_device("auto")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in {"cpu", "cuda"}:
        raise RegardError(
            f'expected "auto", "cpu", "cuda" or "cuda:N", got "{wanted}"', where="device"
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise RegardError(
            f'"{wanted}" is not there: torch sees {count or "no"} CUDA GPU(s) on this machine',
            where="device",
            hint='Use "auto" or "cpu".',
        )
    return device
