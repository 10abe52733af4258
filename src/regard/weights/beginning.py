"""A run folder that was made for nothing is taken back."""

from contextlib import suppress
from pathlib import Path

from regard.errors import RunFolderError
from regard.weights.files import PARTIAL, remove
from regard.weights.lock import LOCK
from regard.weights.manifest import MANIFEST


class Beginning:
    """What was there before a run folder was made; to be asked before that.

    Args:
        folder: where the run will be.
        whole: whether a run that is not whole is of no use.
    """

    def __init__(self, folder: Path, *, whole: bool) -> None:
        self._folder = folder
        self._whole = whole
        # The folder and those above it that it is the first to need.
        self._new = [each for each in (folder, *folder.parents) if not each.exists()]

    def take_back(self) -> None:
        """Remove what the run's beginning left, unless there is something of use.

        What can't be removed stays: why the run failed is what matters then.
        """
        own = {LOCK, MANIFEST}
        with suppress(OSError, RunFolderError):
            entries = list(self._folder.iterdir())
            others = [each for each in entries if each.name not in own]
            if not self._whole and not all(each.name.endswith(PARTIAL) for each in others):
                return
            # The lock goes last: until then no other process begins a run here.
            for entry in sorted(entries, key=lambda each: each.name == LOCK):
                remove(entry)
            for folder in self._new:
                folder.rmdir()
