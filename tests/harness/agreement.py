"""One server's agreement over a store in memory: a test says what becomes of what it asks."""

from itertools import count

from oncemq.cluster.agreement.shard_agreement import ShardAgreement, Told
from oncemq.coordination.coordinator import (
    Answered,
    CoordinatorEvent,
    KeyEntry,
    ReadEntries,
    Request,
    Transact,
    Unanswered,
)
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import (
    ClusterConfig,
    ClusterKeys,
    OpenedDirectory,
    ServerState,
    ShardReplicas,
    V,
    Value,
    decoded,
    encoded,
)
from oncemq.protocol.names import LeaderEpoch, Micros, ServerId, ShardId
from oncemq.protocol.replicas.messages import Life

A, B, C, D = (ServerId(each) for each in "abcd")
SHARD = ShardId(1)
KEYS = ClusterKeys("one")
KEY = KEYS.shard(SHARD)
FOUNDING = ClusterConfig(nonce="")
IDENTITY = b"\5" * 16
TAG = 9


def life(name: ServerId, openings: int = 1, *, disk: str = "") -> Life:
    """Of a server's directory; another disk is another one."""
    return Life(f"{name}{disk}".encode(), openings)


def opened(
    name: ServerId, openings: int = 1, *, disk: str = "", claim: str = ""
) -> OpenedDirectory:
    """The same as it is agreed on."""
    there = life(name, openings, disk=disk)
    return OpenedDirectory(there.incarnation.hex(), openings, claim or f"{name}-claim")


def replicas(
    *in_sync: ServerId, joining: str = "", leader: ServerId | None = None, epoch: int = 0,
    proposed: ServerId | None = None, nonce: str = "n",
) -> ShardReplicas:  # fmt: skip
    """A value of the shard, whose directories were opened once."""
    return ShardReplicas(
        nonce, IDENTITY.hex(), TAG, 0, leader, epoch, {each: opened(each) for each in in_sync},
        {ServerId(each): opened(ServerId(each)) for each in joining}, proposed, 2,
    )  # fmt: skip


def entry(key: str, value: Value, revision: int) -> KeyEntry:
    """A key as the store has it."""
    return KeyEntry(key, encoded(value), revision)


class AgreeingServer:
    """A `ShardAgreement`, its coordinator, and what it was told and has asked."""

    def __init__(
        self, store: LocalStore, name: ServerId = A, *, claim: str = "", address: str = "",
        founding: ClusterConfig = FOUNDING,
    ) -> None:  # fmt: skip
        self.name, self.now = name, Micros(0)
        self.address = address or f"tcp://{name}:1"
        self.coordinator = store.coordinator(KEYS.prefix, lambda: None)
        self.told: list[Told] = []
        self.asked: list[Transact] = []  # all, in order
        self._store = store
        claim, counted = claim or f"{name}-claim", count(1)
        self.agreement = ShardAgreement(
            name, KEYS, SHARD, founding=founding, address=self.address, claim=claim,
            new_nonce=lambda: f"{claim}.{next(counted)}",
        )  # fmt: skip

    def open(
        self, there: Life | None = None, *, identity: bytes = IDENTITY, promised: int = 0
    ) -> "AgreeingServer":
        """Its directory is open."""
        self.agreement.open(there or life(self.name), identity, TAG, 0, LeaderEpoch(promised))
        return self

    def hear(self, *events: CoordinatorEvent) -> list[Told]:
        """These, or what the coordinator has."""
        told: list[Told] = []
        for event in events or self.coordinator.take():
            told += self.agreement.heard(event, self.now)
        self.told += told
        return told

    def tick(self, seconds: float = 0) -> list[Told]:
        """So much later."""
        self.now = Micros(self.now + round(seconds * 1_000_000))
        told = self.agreement.tick(self.now)
        self.told += told
        return told

    def take(self) -> list[tuple[Request, int]]:
        """What it asks now, and nobody else hears of."""
        taken = list(self.agreement.requests)
        self.agreement.requests.clear()
        for request, _ in taken:
            assert not isinstance(request, ReadEntries)
            self.asked.append(request)
        return taken

    def lose(self, *, happens: bool) -> list[Request]:
        """What it asks happens or not, and has no answer."""
        taken = self.take()
        for request, token in taken:
            if happens:
                self._store.decide(request)
            self.hear(Answered(token, Unanswered("the wire broke")))
        return [request for request, _ in taken]

    def settle(self) -> "AgreeingServer":
        """Until it hears nothing more, and asks nothing."""
        agreement = self.agreement
        self.tick()
        for _ in range(50):
            events = self.coordinator.take()
            if events:
                self.hear(*events)
            asked, announced = self.take(), list(agreement.announcements)
            for request, token in asked:
                self.coordinator.ask(request, token)
            agreement.announcements.clear()
            for key, value in announced:
                self.coordinator.announce(key, value)
            if not (events or asked or announced):
                return self
        raise AssertionError(f"it asks on and on: {self.asked[-3:]}")


def stored(store: LocalStore, key: str, kind: type[V]) -> V | None:
    """A value as it is in the store."""
    found = store.decide(ReadEntries((key,)))
    there = getattr(found, "entries", {}).get(key)
    return None if there is None else decoded(there.value, kind, key=key)


def shard_in(store: LocalStore) -> ShardReplicas:
    """The shard's value, which is there."""
    shard = stored(store, KEY, ShardReplicas)
    assert shard is not None
    return shard


def server_in(store: LocalStore, name: ServerId) -> ServerState | None:
    """Where a server says that it is."""
    return stored(store, KEYS.server(name), ServerState)
