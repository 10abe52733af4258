"""What a training's last bits hang on beside its state: who computes, and by what."""

from collections.abc import Mapping

import torch

from regard.kernels import native, products
from regard.machine import cpu_model
from regard.version import VERSION


def arithmetic(device: torch.device, processes: int) -> dict[str, str]:
    """What decides how numbers are rounded and which of them dropout draws, by name.

    A training that goes on with the same from the same state ends with the same bits.
    """
    found = {"processes": str(processes), "regard": VERSION, "torch": torch.__version__}
    if device.type == "cuda":
        return {**found, "GPU": torch.cuda.get_device_name(device)}
    return {
        **found,
        "threads": str(torch.get_num_threads()),
        "processor": cpu_model(),
        "training kernels": native.summary(),
        "float32 products": products.summary(),
    }


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What of it is otherwise than it was, in words; empty if nothing is.

    Earlier versions of regard did not record which they were: of that nothing is said.
    """
    names = [*now, *(name for name in before if name not in now)]
    return ", ".join(
        f"{name}: {before.get(name, 'none')}, now {now.get(name, 'none')}"
        for name in names
        if before.get(name) != now.get(name) and (name != "regard" or name in before)
    )
