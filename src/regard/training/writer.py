"""What a training writes while it goes on: one thing at a time, in a thread beside it."""

import threading
from collections.abc import Callable


class Writer:
    """Does one job at a time in a thread; what a job raises is raised where it is asked after.

    Only the thread that made it may call its methods.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None]) -> None:
        """Begin a job, once the one before it has ended.

        Raises:
            What the job before raised.
        """
        self.wait()
        self._thread = threading.Thread(
            target=self._work, args=(job,), name="regard-writer", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raise what the last job raised, if it has ended; wait for nothing."""
        if not self.busy:
            self.wait()

    def wait(self) -> None:
        """Wait until no job is under way.

        Raises:
            What the job raised.
        """
        self.close()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait until no job is under way, whatever came of it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # it is raised where it is waited for
            self._error = error
