"""A model that PyTorch makes when it is first asked for, and its weights without PyTorch."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    Array = NDArray[np.generic]
    Model = TypeVar("Model", bound=nn.Module)
else:
    Array = object
    Model = TypeVar("Model")


class LazyModel(Generic[Model]):
    """The model of a run folder, for PyTorch and for the engine.

    Args:
        make: puts it together, on its device and in eval mode; imports torch.
        arrays: its weights by name, without torch.
        on_cpu: whether it is, or will be, on the CPU.
    """

    def __init__(
        self,
        make: Callable[[], Model],
        arrays: Callable[[], Mapping[str, Array]],
        *,
        on_cpu: bool = True,
    ) -> None:
        self._make = make
        self._arrays = arrays
        self._model: Model | None = None
        self.on_cpu = on_cpu

    @classmethod
    def ready(cls, model: Model) -> "LazyModel[Model]":
        """One that is there already."""

        def arrays() -> dict[str, Array]:
            return {
                name: each.detach().float().numpy() for name, each in model.state_dict().items()
            }

        on_cpu = all(each.device.type == "cpu" for each in model.parameters())
        return cls(lambda: model, arrays, on_cpu=on_cpu)

    @property
    def model(self) -> Model:
        """The model, a plain `torch.nn.Module`.

        Raises:
            RunFolderError: its weights do not fit the recipe, or changed since the folder was
                opened.
        """
        if self._model is None:
            self._model = self._make()
        return self._model

    def make(self) -> None:
        """Put it together now, so that what is wrong with it is said now.

        Raises:
            As `model`.
        """
        _ = self.model

    def arrays(self) -> Mapping[str, Array]:
        """Its weights by the names of its state dict."""
        return self._arrays()
