"""Weights cut over processes: each keeps its share, and has a layer whole only while it computes.

torch's `fully_shard`. What is cut is a DTensor; what a file or a validation needs whole is put
together one tensor at a time, by all processes at once.

Source: Zhao et al. 2023, arXiv:2304.11277; Rajbhandari et al. 2020, arXiv:1910.02054 (stage 3).
"""

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.shapes import Tensor


def shard(root: nn.Module, device: torch.device, count: int) -> None:
    """Cut all weights of a module over the processes, those of each layer together.

    Gradients are averaged over the processes, each of which gets those of its share. What is in
    no layer, such as the embeddings, is whole during the whole of a pass.

    Args:
        root: a loss as a module, with a model in it; every process has the same weights in it.
        device: where it computes; what is cut is moved there.
        count: the number of processes, all of which must call this.
    """
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import (  # noqa: PLC0415
        fully_shard,
        register_fsdp_forward_method,
    )

    # Nothing here changes in place what a layer returns.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (count,))
    for layer in _layers(root):
        fully_shard(layer, mesh=mesh)
        if hasattr(layer, "keys_and_values"):  # called outside of the layer's forward pass
            register_fsdp_forward_method(layer, "keys_and_values")
    fully_shard(root, mesh=mesh)


def local(tensor: Tensor) -> Tensor:
    """The share of this process, in the same memory; the tensor itself where it is not cut."""
    if not isinstance(tensor, DTensor):
        return tensor
    return cast(DTensor, tensor.detach()).to_local()


def cut_as(whole: Tensor, like: Tensor) -> Tensor:
    """A tensor that every process has whole, on the device and cut as another one is."""
    whole = whole.to(like.device)
    if not isinstance(like, DTensor):
        return whole
    # Without a source nothing is sent: each takes its share of what it has.
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


def gathered(tensor: Tensor) -> Tensor:
    """The whole of a tensor, for which all processes must call this."""
    with torch.no_grad():
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def is_cut(model: nn.Module) -> bool:
    """Whether a model's weights are cut over processes."""
    return any(isinstance(weight, DTensor) for weight in model.parameters())


class WholeModel:
    """A model as it was before it was cut, without its weights; they are given when it is used.

    Args:
        model: a model that is not cut yet.
    """

    def __init__(self, model: nn.Module) -> None:
        # A copy takes what the memo has in place of what is to be copied.
        memo: dict[int, object] = {
            id(weight): nn.Parameter(weight.detach().to("meta"), weight.requires_grad)
            for weight in model.parameters()
        }
        self._bare = copy.deepcopy(model, memo)

    def filled(self, tensors: Mapping[str, Tensor], device: torch.device) -> nn.Module:
        """The model with a state; its tensors are taken as they are where the device is theirs."""
        model = copy.deepcopy(self._bare)
        model.load_state_dict(dict(tensors), assign=True)
        return model.to(device)


def _layers(root: nn.Module) -> Iterator[nn.Module]:
    """The layers of a module's stacks; not the stacks that are inside of a layer."""
    for child in root.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from _layers(child)
