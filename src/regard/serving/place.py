"""Where a model works, and on how many threads, said before PyTorch is there to be asked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from regard import machine
from regard.arguments import require, whole_number
from regard.signals import load_torch

if TYPE_CHECKING:
    from torch import device as Device  # noqa: N812 - it is a class
else:
    Device = object

MOST_THREADS: Final = 1024


@dataclass(frozen=True)
class Place:
    """A device by its name ("auto", "cpu", "cuda:1"), and CPU threads; None leaves torch's."""

    device: str = "cpu"
    threads: int | None = None

    def check(self) -> "Place":
        """The same with a device that this machine has; "auto" becomes what it stands for.

        PyTorch is imported only where a GPU may be meant.

        Raises:
            RegardError: there is no such device, or no machine has so many threads.
        """
        threads = self.threads
        if threads is not None:
            hint = "Leave it out to use all cores."
            threads = whole_number(threads, "threads", least=1, most=MOST_THREADS, hint=hint)
        require(self.device, str, "device", 'a string: "auto", "cpu", "cuda" or "cuda:N"')
        if self.device == "cpu" or (self.device == "auto" and not machine.may_have_gpu()):
            return Place("cpu", threads)
        return Place(str(self._find()), threads)

    @property
    def on_cpu(self) -> bool:
        """Whether it is no GPU; only a checked place says so for certain."""
        return self.device == "cpu"

    def prepare(self) -> Device:
        """The device itself, for PyTorch, which from now on uses so many threads.

        Raises:
            As `check`.
        """
        load_torch("regard.serving.devices")
        from regard.serving.devices import prepare_device  # noqa: PLC0415 - imports torch

        return prepare_device(self.device, self.threads)

    def _find(self) -> Device:
        load_torch("regard.serving.devices")
        from regard.serving.devices import find_device  # noqa: PLC0415 - imports torch

        return find_device(self.device)
