"""Which device a run trains on."""

import torch

from regard.counts import counted
from regard.errors import RegardError


def choose_device(wanted: str) -> torch.device:
    """The device for `auto`, `cpu` or `cuda`; `auto` takes a CUDA GPU where there is one.

    Raises:
        RegardError: `cuda` is asked for and this machine, or this build of torch, has none.
    """
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise RegardError(
            'device = "cuda" needs a CUDA GPU, and torch sees none on this machine',
            where="training.device",
            hint='Use device = "auto" or "cpu", or install a build of torch for this GPU.',
        )
    if wanted == "cpu" or not available:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def describe_device(device: torch.device) -> str:
    """The device in words, for logs."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} ({device})"
    return f"CPU, {counted(torch.get_num_threads(), 'thread')}"
