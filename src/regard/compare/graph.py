"""The longest chain of operations in a layer's pass of which each needs the one before it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.compare.layers import Subject
from regard.compare.results import Counted
from regard.compare.scaling import counted
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions
from regard.shapes import Tensor

LENGTHS = (64, 128, 256, 512, 1024)
_D_MODEL, _HEADS = 8, 2

# Operations that only look at the same numbers in another shape, or write none.
_FREE = frozenset(
    {
        "view", "_unsafe_view", "reshape", "_reshape_alias", "expand", "permute", "transpose", "t",
        "unsqueeze", "squeeze", "select", "slice", "split", "split_with_sizes", "unbind", "unfold",
        "as_strided", "alias", "detach", "diagonal", "chunk", "lift_fresh", "numpy_T", "empty",
        "new_empty", "empty_like", "empty_strided",
    }
)  # fmt: skip
# Sums over all places so far: the best way takes about log2 n operations after one another.
_SCANS = frozenset(
    {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_cummax_helper", "_cummin_helper"}
)


class Depths(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows what is computed from what, and how many operations deep.

    An operation is as deep as the deepest of what it reads, plus 1; however large its tensors
    are, it counts once, for its numbers do not wait for one another. A view counts nothing, and
    a running sum (`cumsum` and its like) `log2` of the length that it runs over. What was not
    computed from the input has no depth.

    Tensors are told apart by the memory that they lie in, so that a part of a tensor that was
    written in place is as deep as what was written.
    """

    def __init__(self, source: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._written: dict[int, list[tuple[int, int, int]]] = {}
        self._alive: list[Tensor] = []  # else memory could be used again, and be mistaken
        self._write(source, 0)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - PyTorch's own signature
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run one operation, and note how deep its results are."""
        found = [self.depth(tensor) for tensor in _tensors((args, kwargs or {}))]
        inputs = [depth for depth in found if depth is not None]
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        if inputs and name not in _FREE:
            depth = max(inputs) + self._steps(name, args)
            for tensor in _tensors(out):
                self._write(tensor, depth)
        return out

    def depth(self, tensor: Tensor) -> int | None:
        """How deep a tensor is; None if it was not computed from the input."""
        low, high = _extent(tensor)
        writes = self._written.get(tensor.untyped_storage()._cdata, ())
        return max((depth for a, b, depth in writes if a < high and low < b), default=None)

    def _write(self, tensor: Tensor, depth: int) -> None:
        low, high = _extent(tensor)
        writes = self._written.setdefault(tensor.untyped_storage()._cdata, [])
        # What is written over in whole is gone.
        writes[:] = [each for each in writes if not (low <= each[0] and each[1] <= high)]
        writes.append((low, high, depth))
        self._alive.append(tensor)

    @staticmethod
    def _steps(name: str, args: tuple[Any, ...]) -> int:
        if name not in _SCANS:
            return 1
        tensor = args[0]
        axis = next((arg for arg in args[1:] if isinstance(arg, int)), -1)
        return max(1, (int(tensor.shape[axis]) - 1).bit_length())


def depth_of(function: Callable[[Tensor], Tensor], source: Tensor) -> int:
    """The longest chain of dependent operations from a tensor to what a function makes of it.

    Raises:
        ValueError: none of the operations that PyTorch saw leads there, as where the function
            computes outside of PyTorch.
    """
    depths = Depths(source)
    with torch.no_grad(), depths:
        out = function(source)
    depth = depths.depth(out)
    if depth is None:
        raise ValueError("nothing that PyTorch computed leads from the input to the output")
    return depth


def sequential_operations(
    subject: Subject, *, seed: int, lengths: Sequence[int] = LENGTHS
) -> Counted:
    """The chain in a forward pass of a layer, by length.

    In float64, 8 wide and with the layer's small settings: fused kernels, within which chains
    can't be seen, are for float32, and neither the width nor the settings add to a chain.
    """
    points = []
    for length in lengths:
        torch.manual_seed(seed)
        layer = subject.build(_D_MODEL, _HEADS, length, small=True).double().eval()
        x = torch.randn(1, length, _D_MODEL, dtype=torch.float64)

        def run(x: Tensor, layer: Callable[..., Tensor] = layer) -> Tensor:
            return layer(x, Span.whole(Positions(), x, causal=subject.causal))

        points.append((length, depth_of(run, x)))
    return counted(points, subject.small_settings)


def _tensors(values: object) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _extent(tensor: Tensor) -> tuple[int, int]:
    """The first byte of a storage that a tensor may lie in, and the one after the last."""
    if tensor.numel() == 0:
        return 0, 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    reach = sum((size - 1) * int(stride) for size, stride in steps)
    start, width = int(tensor.storage_offset()), tensor.element_size()
    return start * width, (start + reach + 1) * width
