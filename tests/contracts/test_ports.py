"""Every port of the source has its place here: with a suite, or with the reason why it has none.

A port is a `Protocol`. One with two or more implementations has a suite in this directory that
each of them passes. A port that is not named here fails, and so does an implementation that its
suite does not know. Of a port with one or two members nobody can tell who implements it and who
only looks so: of these, the registry is believed.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

import oncemq

HERE = Path(__file__).parent
PACKAGE = Path(oncemq.__file__).parent
SIMULATOR = HERE.parents[1] / "simulator"  # beside the package: its modules are `simulator/…`
TELLING = 3  # members: a class that has so many of a port's by chance would be news
PLANTED = "simulator/planted/"  # bugs that a simulation has to find: they keep no contract


@dataclass(frozen=True)
class Suite:
    """Where a port's contract is, and who passes it."""

    files: tuple[str, ...]
    implementations: tuple[str, ...]


JOURNALS = ("client/state/journal.Journal", "simulator/machines/memory_journal.SimulatedJournal")
DISKS = (
    *("storage/disk.LocalDisk", "testing/faulty_disk.FaultyDisk"),
    *("testing/chaotic_disk.ChaoticDisk", "simulator/machines/machine.ProcessDisk"),
)
VIEWS = (
    *("storage/disk.DiskView", "storage/repair/forgiving.ForgivingDisk"),
    "storage/backup/manifest.BackupView",
)

SERVED = ("server/driver.Driver", "cluster/replica.Replica")

SUITES: dict[str, Suite] = {
    "apps/handler_loop.HandlerIO": Suite(
        ("test_handler_io.py",), ("apps/aio.AsyncHandlerIO", "apps/blocking.BlockingHandlerIO")
    ),
    "client/admin/accepting.Accepting": Suite(("test_accepting.py",), JOURNALS),
    "client/shell/forks.Forkable": Suite(
        ("test_forkable.py",), ("client/aio/runner.AsyncRunner", "client/blocking/runner.Runner")
    ),
    "client/engine/line.ServerConnection": Suite(
        ("test_server_connection.py", "wires.py"),
        ("transport/dealer.DealerSocket", "simulator/network/network.SimulatedDealer"),
    ),
    "client/engine/line.FeedPort": Suite(
        ("test_feed_subscriber.py", "wires.py"),
        (
            "transport/feed_subscriber.FeedSubscriber",
            "simulator/network/feed.SimulatedFeedSubscriber",
        ),
    ),
    "client/state/known.Memory": Suite(
        ("test_memory.py", "test_epochs.py"),
        (*JOURNALS, "client/state/memory_journal.MemoryJournal", "relay/publisher.RelayMemory"),
    ),
    "transport/serving/poller.Poller": Suite(
        ("test_poller.py",),
        ("transport/serving/poller.EpollPoller", "transport/serving/poller.PollPoller"),
    ),
    "client/ticket.Awaited": Suite(
        ("test_awaited.py",), ("client/ticket.Ticket", "client/ticket.Until")
    ),
    "coordination/coordinator.Coordinator": Suite(
        ("test_coordinator.py",),
        (
            "coordination/local.LocalCoordinator",
            "coordination/etcd/coordinator.EtcdCoordinator",
            "simulator/coordination/simulated_coordinator.SimulatedCoordinator",
        ),
    ),
    "databases/connections.Connection": Suite(
        ("test_connection.py",),
        (
            *("databases/with_asyncpg.Asyncpg", "databases/with_psycopg.Psycopg"),
            *("databases/with_sqlalchemy.SqlAlchemy", "databases/with_sqlite3.Sqlite3"),
            "simulator/machines/fake_database.FakeConnection",
        ),
    ),
    "relay/notifications.CommitNotifications": Suite(
        ("test_commit_notifications.py",),
        (
            "relay/notifications.SqliteWatch",
            "relay/notifications.PsycopgWatch",
            "relay/notifications.AsyncpgWatch",
        ),
    ),
    "cluster/replica.Links": Suite(
        ("test_links.py", "wires.py"),
        ("cluster/links.ReplicaLinks", "simulator/cluster/simulated_links.SimulatedLinks"),
    ),
    "simulator/servers/servers.Servers": Suite(
        ("test_servers.py",),
        (
            "simulator/servers/alone_server.AloneServer",
            "simulator/cluster/cluster_servers.ClusterServers",
        ),
    ),
    "server/completeness.Holdings": Suite(
        ("test_holdings.py",), ("server/examination._Shelves", "storage/log/log.Log")
    ),
    "server/served.Answers": Suite(("test_served.py",), SERVED),
    "server/served.Feeds": Suite(("test_served.py",), SERVED),
    "server/served.Served": Suite(("test_served.py",), SERVED),
    "server/served.KeepsHouse": Suite(
        ("test_served.py",), ("server/housekeeping.Housekeeping", "cluster/replica.Replica")
    ),
    "server/housekeeping.Household": Suite(
        ("test_served.py",), ("server/driver.Driver", "cluster/keeper.Keeper")
    ),
    "session/outgoing.RequestOwner": Suite(
        ("test_request_owner.py",),
        (
            *("client/engine/fetches.Fetches", "client/engine/handshake.HandshakeEngine"),
            *("client/engine/listening.Listening", "client/engine/questions.Questions"),
            *("client/engine/settling.Settling", "client/engine/stage_puts.StageLine"),
            *("client/puts/deleted_topics.Forgetting", "client/puts/put_buffer.PutBuffer"),
        ),
    ),
    "spark/pipelines/archives/store.Store": Suite(
        ("test_archive_store.py",),
        (
            "spark/pipelines/archives/delta.DeltaStore",
            "spark/pipelines/archives/parquet.ParquetStore",
        ),
    ),
    "spark/pipelines/run.Screen": Suite(
        ("test_screen.py",), ("cli/pipeline/running.Terminal", "spark/pipelines/run.Blank")
    ),
    "storage/disk.Disk": Suite(("test_disk.py",), (*DISKS, *VIEWS)),
    "storage/disk.File": Suite(
        ("test_disk.py",),
        (
            *("storage/disk.LocalFile", "testing/faulty_disk.FaultyFile"),
            *("testing/chaotic_disk.ChaoticFile", "simulator/machines/machine.ProcessFile"),
            "storage/repair/forgiving.ForgivingFile",
        ),
    ),
    "storage/disk.Lock": Suite(
        ("test_disk.py", "test_locks.py"),
        ("storage/locks.LocalLock", "testing/faulty_disk.FaultyLock"),
    ),
    "storage/disk.LockingDisk": Suite(("test_disk.py",), DISKS),
    "storage/segments/index.Index": Suite(
        ("test_index.py",),
        ("storage/segments/index.MemoryIndex", "storage/segments/index.FileIndex"),
    ),
}

# Ports that keep two packages apart, or name what one needs of another: one implementation each.
ALONE: dict[str, str] = {
    "transport/connecting/watched_sockets.Closable": "transport/connecting/name_lookup.NameLookup",
    "client/pending.Answering": "client/blocking/runner.Runner",
    "client/aio/pending.AsyncAnswering": "client/aio/runner.AsyncRunner",
    "client/engine/survival.Mortal": "client/engine/engine.Engine",
    "client/engine/transactions.DoubtfulCommit": "client/verbs/transaction_work.TransactionWork",
    "session/cursors.Delivered": "client/values.Message",
    "session/prefetched.MessageRun": "client/values.Fetched",
    "cluster/sends.Sends": "cluster/links.ReplicaLinks",
    "cluster/links.Watches": "transport/serving/connections.Connections",
    "transport/wakeup.Bell": "transport/wakeup.Wakeup",
    "broker/given.Gate": "server/admission.Admission",
    "broker/given.StorageFacts": "server/driver.Driver",
    "server/admission.RoomPort": "storage/log/log.Log",
    "server/completeness.HeldExtent": "storage/segments/entries.Extent",
    "simulator/network/feed.Station": "simulator/actors/server_loop.ServerLoop",
    "simulator/world/lost_machine.LosesMachines": "simulator/world/simulation.Simulation",
    "simulator/world/quiesce.Healed": "simulator/world/simulation.Simulation",
    "simulator/history/stories.Several": "simulator/history/transaction_outcomes.Deal",
    "simulator/network/network.Host": "simulator/actors/server_loop.ServerLoop",
}

# Ports for what users bring.
OF_USERS = {"databases/outbox.AwaitableConnection"}


class Classes:
    """All classes of some modules, by `module.Class`."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._found: dict[str, ast.ClassDef] = {}
        for module, text in modules.items():
            for each in ast.walk(ast.parse(text)):
                if isinstance(each, ast.ClassDef):
                    self._found[f"{module}.{each.name}"] = each
        self._members: dict[str, set[str]] = {}
        self._by_name: dict[str, list[str]] = {}
        for place, each in self._found.items():
            self._by_name.setdefault(each.name, []).append(place)

    @property
    def ports(self) -> set[str]:
        return {place for place, each in self._found.items() if "Protocol" in _bases(each)}

    def members(self, place: str) -> set[str]:
        """The names of what a class has, with what it inherits from classes of this source."""
        if place not in self._members:
            each = self._found[place]
            found = self._members[place] = _own(each)
            others = (other for base in _bases(each) for other in self._by_name.get(base, ()))
            found.update(*(self.members(other) for other in others if other != place))
        return self._members[place]

    def has(self, place: str, port: str) -> bool:
        """Whether it is a class that has all that the port asks for."""
        return place in self._found and self.members(port) <= self.members(place)

    def alike(self, port: str) -> set[str]:
        """The classes that have all that the port asks for."""
        others = set(self._found) - self.ports
        return {each for each in others if self.has(each, port) and not each.startswith(PLANTED)}

    def is_telling(self, port: str) -> bool:
        return len(self.members(port)) >= TELLING


def _bases(each: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in each.bases]


def _own(each: ast.ClassDef) -> set[str]:
    """Methods, fields, and what a method gives to `self`."""
    found: set[str] = set()
    for item in each.body:
        match item:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
                found |= _given(item)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case _:
                pass
    return found


def _given(function: ast.AST) -> set[str]:
    return {
        each.attr
        for each in ast.walk(function)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }


@pytest.fixture(scope="module")
def source() -> Classes:
    roots = {PACKAGE: PACKAGE, SIMULATOR: SIMULATOR.parent}
    return Classes(
        {
            path.relative_to(root).with_suffix("").as_posix(): path.read_text("utf-8")
            for folder, root in roots.items()
            for path in sorted(folder.rglob("*.py"))
        }
    )


def test_every_port_has_a_suite_or_a_reason(source: Classes) -> None:
    assert source.ports == {*SUITES, *ALONE, *OF_USERS}
    assert not set(SUITES) & set(ALONE)


@pytest.mark.parametrize("port", list(SUITES))
def test_a_suite_is_there_and_names_every_implementation(port: str, source: Classes) -> None:
    suite = SUITES[port]
    assert len(suite.implementations) >= 2
    assert [each for each in suite.implementations if not source.has(each, port)] == []
    if source.is_telling(port):
        assert source.alike(port) == set(suite.implementations)
    text = "".join((HERE / file).read_text("utf-8") for file in suite.files)
    named = {each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name)}
    named |= {each.attr for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Attribute)}
    assert {each.rpartition(".")[2] for each in suite.implementations} - named == set()


@pytest.mark.parametrize("port", list(ALONE))
def test_a_port_without_a_suite_has_one_implementation(port: str, source: Classes) -> None:
    assert source.has(ALONE[port], port)
    if source.is_telling(port):
        assert source.alike(port) == {ALONE[port]}


def test_every_suite_of_this_directory_is_a_ports() -> None:
    used = {file for suite in SUITES.values() for file in suite.files}
    assert {path.name for path in HERE.glob("*.py")} == {*used, Path(__file__).name}


# ------------------------------------------------------------------ it can fail

PORT = "class P(Protocol):\n    size: int\n    def a(self): ...\n    def b(self): ...\n"


@pytest.mark.parametrize(
    "text",
    [
        "class C:\n    size = 1\n    def a(self): ...\n    def b(self): ...",
        "class C:\n    size: int\n    def a(self): ...\n    async def b(self): ...",
        "class C:\n    def __init__(self, x):\n        self.size, self.a = x\n        self.b = x",
        "class B:\n    size = 1\n    def a(self): ...\nclass C(B):\n    def b(self): ...",
    ],
    ids=["plain", "awaitable", "given", "inherited"],
)
def test_an_implementation_is_seen(text: str) -> None:
    assert Classes({"core/p": PORT, "core/c": text}).alike("core/p.P") == {"core/c.C"}


def test_a_near_miss_is_none() -> None:
    text = "class C:\n    def a(self): ...\n    def b(self): size = 1\nclass Q(P, Protocol): ..."
    classes = Classes({"core/p": PORT, "core/c": text})
    assert (classes.alike("core/p.P"), classes.ports) == (set(), {"core/p.P", "core/c.Q"})
    assert classes.members("core/c.Q") == {"size", "a", "b"}
    assert not classes.has("core/c.C", "core/p.P")
    assert not classes.has("core/gone.C", "core/p.P")
