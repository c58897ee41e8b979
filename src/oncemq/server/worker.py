"""A thread that does blocking work for the loop, one piece after the other.

Law: what fails is not retried and not hidden: the loop gets the exception and stops.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from oncemq.transport.wakeup import Wakeup

Task = Callable[[], None]


class Worker:
    """Runs tasks in order on its own thread and rings the loop's bell after each."""

    def __init__(self, name: str, bell: Wakeup) -> None:
        self._bell = bell
        self._tasks: SimpleQueue[tuple[Task, Task] | None] = SimpleQueue()
        self._done: deque[Task | BaseException] = deque()
        self.under_way = 0  # pieces that were given and not taken note of
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether everything given was done and taken note of."""
        return self.under_way == 0

    def give(self, task: Task, then: Task) -> None:
        """Do `task` on the thread, and `then` in the loop (by `reap`) once it is done."""
        self.under_way += 1
        self._tasks.put((task, then))

    def reap(self) -> None:
        """In the loop: take note of what was done; raises what the thread raised."""
        while self._done:
            outcome = self._done.popleft()
            self.under_way -= 1
            if isinstance(outcome, BaseException):
                raise outcome
            outcome()

    def stop(self) -> None:
        """Finish what was given, then end the thread."""
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._tasks.get()) is not None:
            task, then = item
            try:
                task()
            except BaseException as error:
                self._done.append(error)
                self._bell.ring()
                return
            self._done.append(then)
            self._bell.ring()


class InPlaceWorker(Worker):
    """Does what it is given at once: for who has no thread, as the simulator."""

    def __init__(self) -> None:
        self.under_way = 0

    def give(self, task: Task, then: Task) -> None:
        """Do both, and return."""
        task()
        then()

    def reap(self) -> None:
        """There is nothing to take note of."""

    def stop(self) -> None:
        """There is no thread."""
