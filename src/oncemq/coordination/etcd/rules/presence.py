"""What a server announces, under a lease that is kept alive and replaced when it ended.

Law: a lease is a hint and nothing else. One that ended, early or not, is replaced, and what was
announced is put again; nobody is told.
"""

from collections.abc import Iterable

from oncemq.coordination.etcd.rules.calls import (
    CallAnswer,
    Grant,
    Granted,
    KeepAlive,
    Kept,
    PutLeased,
)


class Presence:
    """What to ask etcd next so that everything announced is there."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._announced: dict[str, bytes] = {}
        self._put: dict[str, bytes] = {}  # what is there under this lease
        self._gone: set[str] = set()  # seen to vanish, since each was sent last
        self.lease: int | None = None

    def announce(self, key: str, value: bytes) -> None:
        """It is to be there from now on."""
        self._announced[key] = value

    def next(self, *, is_due: bool) -> Grant | PutLeased | KeepAlive | None:
        """What is to be asked now; `is_due`: it is time to keep the lease alive."""
        if not self._announced:
            return None
        if self.lease is None:
            return Grant(self._lease_ms)
        for key, value in self._announced.items():
            if self._put.get(key) != value:
                self._gone.discard(key)
                return PutLeased(key, value, self.lease)
        return KeepAlive(self.lease) if is_due else None

    def answered(self, call: Grant | PutLeased | KeepAlive, answer: CallAnswer) -> None:
        """Etcd answered."""
        match call, answer:
            case Grant(), Granted(lease):
                self.lease, self._put = lease, {}
            case _, Kept(is_there=False):
                self.lease, self._put = None, {}
            case PutLeased(key, value), _:
                if key not in self._gone:  # it may vanish before its put is confirmed
                    self._put[key] = value
            case _:
                pass

    @property
    def announced(self) -> set[str]:
        """The keys that are to be there."""
        return set(self._announced)

    def vanished(self, keys: Iterable[str]) -> bool:
        """Keys are gone, though the lease was kept alive: some versions of etcd confirm too much.

        Of these, what is announced is put again; when the lease is gone too, that says so.
        """
        ours = [key for key in keys if key in self._announced]
        self._gone.update(ours)
        for key in ours:
            self._put.pop(key, None)
        return bool(ours)
