"""What a cluster agrees on, as etcd has it: read and changed by a person's command.

How it works. The coordinator of a server, without a lease of its own; what it tells is kept in
`KnownKeys`, and a change is decided by that and written only while it is still so. Overtaken, it is
decided again by what is there now. Without an answer it is asked again: it cannot happen twice.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from oncemq.cli.terminal.session import CommandSession
from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination.coordinator import (
    Answered,
    Changes,
    Coordinator,
    CoordinatorEvent,
    Happened,
    KeyEntry,
    Outcome,
    Overtaken,
    Ring,
    Snapshot,
    StoreAway,
    StoreBack,
    Transact,
)
from oncemq.coordination.etcd.connection import Access
from oncemq.coordination.etcd.coordinator import EtcdCoordinator, Limits
from oncemq.coordination.transactions import Declined
from oncemq.coordination.values import ClusterKeys
from oncemq.errors import ConfigError, Refused, Unreachable
from oncemq.protocol.names import ShardId

FIRST_SHARD = ShardId(1)
PATIENCE_SECONDS = 5.0  # for etcd, which has an election now and then

T = TypeVar("T")
Decide = Callable[[KnownKeys], Transact | Declined | None]  # None: it is so already
MakeCoordinator = Callable[[str, Ring], Coordinator]


class ChangeDeclined(Refused):
    """What was asked for is against the rules just now; the words say what to do instead."""

    code = "declined"


class NotYetSo(Refused):
    """What was asked for is written, and has not come to be in time."""

    code = "not_yet"


class EtcdUnreachable(Unreachable):
    """No member of etcd answered."""

    code = "etcd_unreachable"


class Agreed:
    """A cluster in etcd, from the first look to the end of a command."""

    def __init__(self, cluster: str, coordinator: MakeCoordinator, *, patience: float) -> None:
        self.known = KnownKeys(ClusterKeys(cluster), FIRST_SHARD)
        self.away: str | None = None
        self._patience = patience
        self._bell = threading.Event()
        self._outcomes: dict[int, Outcome] = {}
        self._tokens = 0
        self._coordinator = coordinator(self.known.keys.prefix, self._bell.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._coordinator.close()

    def look(self) -> KnownKeys:
        """What is there now; EtcdUnreachable when nothing says so in time."""
        if not self._until(lambda: self.known.has_snapshot, self._patience):
            raise self._unreachable()
        return self.known

    def wait(
        self, found: Callable[[KnownKeys], T | None], seconds: float, tick: Callable[[], object]
    ) -> T | None:
        """The first thing that is found, within so long; `tick` is called now and then."""
        deadline = time.monotonic() + seconds
        while (value := found(self.known)) is None and (left := deadline - time.monotonic()) > 0:
            tick()
            self._until(lambda: False, min(left, 0.2))
        return value

    def change(self, decide: Decide) -> bool:
        """Make it so; False when it was so already. ChangeDeclined when the rules forbid it."""
        self.look()
        while True:
            wanted = decide(self.known)
            if wanted is None:
                return False
            if isinstance(wanted, Declined):
                raise ChangeDeclined(wanted.why)
            match self._asked(wanted):
                case Happened(revision):
                    puts = wanted.puts.items()
                    self.known.answered({k: KeyEntry(k, v, revision) for k, v in puts})
                    return True
                case Overtaken(entries):
                    self._overtaken(wanted, entries)
                case _:
                    raise self._unreachable()

    def _overtaken(self, wanted: Transact, entries: dict[str, KeyEntry]) -> None:
        """By an own try whose answer was lost, perhaps; what is there now says so."""
        self.known.answered(entries)
        gone = [key for key in wanted.expected if key not in entries]
        self._until(lambda: all(not self.known.revision(key) for key in gone), self._patience)

    def _asked(self, transaction: Transact) -> Outcome | None:
        self._tokens += 1
        token = self._tokens
        self._coordinator.ask(transaction, token)
        self._until(lambda: token in self._outcomes, self._patience + Limits().request_ms / 1000)
        return self._outcomes.pop(token, None)

    def _unreachable(self) -> EtcdUnreachable:
        return EtcdUnreachable(
            f"etcd does not answer within {self._patience:g} s: {self.away or 'no answer'}; is "
            "--etcd right, and are most of its members there?"
        )

    def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Hear what the coordinator says until it is so, or the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            self._bell.clear()
            for event in self._coordinator.take():
                self._hear(event)
            if is_so():
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            self._bell.wait(left)

    def _hear(self, event: CoordinatorEvent) -> None:
        match event:
            case Snapshot(entries, revision):
                self.known.snapshot(entries, revision)
            case Changes(entries, revision):
                self.known.watched(entries, revision)
            case Answered(token, outcome):
                self._outcomes[token] = outcome
            case StoreAway(why):
                self.away = why
            case StoreBack():
                self.away = None


def agreed_of(
    session: CommandSession, cluster: str | None = None, *, patience: float = PATIENCE_SECONDS
) -> Agreed:
    """The cluster that the settings name, in the etcd that they name."""
    # A command says by itself what became of it: nothing of the coordinator's log on stderr.
    logging.getLogger("oncemq.coordination").addHandler(logging.NullHandler())
    config = session.config
    name = cluster or config.cluster
    if not config.etcd or name is None:
        raise ConfigError(
            "say which cluster, and where its etcd is: --cluster NAME --etcd ADDRESS,… "
            "(or ONCEMQ_CLUSTER and ONCEMQ_ETCD)"
        )
    return Agreed(name, etcd_at(config.etcd), patience=min(config.timeout, patience))


def new_nonce() -> str:
    """For a value that nobody wrote before."""
    return secrets.token_hex(8)


def etcd_at(addresses: tuple[str, ...]) -> MakeCoordinator:
    """A coordinator over the etcd at these addresses."""
    access = Access(addresses)

    def make(prefix: str, ring: Ring) -> EtcdCoordinator:
        return EtcdCoordinator(access, prefix, ring)

    return make
