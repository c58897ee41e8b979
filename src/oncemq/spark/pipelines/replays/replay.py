# pyright: basic
# pyspark and pyarrow carry few types.
"""`replay`: an archive back into a topic, each message once.

    from oncemq.spark.pipelines import replay
    replay("/data/orders", "orders-again")

Tasks stage ranges on the server, unseen; the driver publishes them in order, under the name of
the replay and the offset they end at, which the server remembers for good. So how far a replay
is, the server knows: run again it goes on there, or adds nothing. Law: a replay has one driver
at a time; a second one with its name fences the first, whose commits are refused from then on.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from oncemq.client.blocking.client import Client
from oncemq.client.engine.stage_puts import StageToken
from oncemq.client.settings import DEFAULT_SERVER
from oncemq.client.state.memory_journal import state_in_memory
from oncemq.errors import ConfigError, Fenced
from oncemq.spark.options.reader import TIMEOUT_SECONDS
from oncemq.spark.pipelines.archives.place import ArchivePlace, find
from oncemq.spark.pipelines.archives.stock import Stock
from oncemq.spark.pipelines.archives.store import store_of
from oncemq.spark.pipelines.replays.tasks import ReplayTask, stage_range
from oncemq.spark.pipelines.run import MASTER, PipelineRun
from oncemq.spark.pipelines.spread import spread
from oncemq.spark.sink.wanted import storing
from oncemq.spark.source.ranges import TopicRange, cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ROWS, TASK_BYTES = 100_000, 64 << 20
STEP_TASKS = 8  # after so many, what they staged is published
OPENED = 1  # the number of a replay that has begun; an end at offset 5 is number 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Replayed:
    """What a run of a replay did: new messages, and up to which offset each topic is replayed."""

    messages: int
    ends: dict[str, int]


@dataclass(frozen=True)
class Choice:
    """Which messages of an archive: of these topics (all), of that time; by microseconds."""

    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    name: str = ""  # another name is another replay


def replay(
    path: str | Path,
    to: str,
    *,
    topics: str | Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    name: str = "",
    server: str = DEFAULT_SERVER,
    timeout: float = TIMEOUT_SECONDS,
    master: str = MASTER,
    spark: "SparkSession | None" = None,
) -> Replayed:
    """Put what an archive holds into the topic `to`, once; see docs/PIPELINES.md."""
    given: dict[str, Any] = {"timeout": timeout, "master": master, "spark": spark}
    with PipelineRun("replay", f"{path} to {to}", server=server, **given) as run:
        return replay_on(run, path, to, topics=topics, since=since, until=until, name=name)


def replay_on(
    run: PipelineRun,
    path: str | Path,
    to: str,
    *,
    topics: str | Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    name: str = "",
) -> Replayed:
    """The same, as a part of a run."""
    wanted = (topics,) if isinstance(topics, str) else tuple(topics)
    choice = Choice(wanted, _micros(since), _micros(until), name)
    place = find(str(path))
    stocks = _stocks(place, choice)
    target = _wanted(run.mq, to)
    total = max(sum(each.stop - each.start for each in stocks), 1)
    ends: dict[str, int] = {}
    count = passed = 0
    for stock in stocks:
        owner = _owner(place, stock, target, choice)
        state = state_in_memory(owner.replace(":", "-"))
        with closing(Client(run.server, timeout=run.timeout, state=state)) as mq, _alone(path):
            work = Replaying(run, mq, owner, to, choice, stock)
            for done in work.steps():
                count += done
                run.progress(count, (passed + work.at - stock.start) / total)
        passed += stock.stop - stock.start
        ends[stock.topic] = work.at
    run.progress(count, 1.0)
    return Replayed(count, ends)


class Replaying:
    """One topic of an archive on its way."""

    def __init__(
        self, run: PipelineRun, mq: Client, owner: str, to: str, choice: Choice, stock: Stock
    ) -> None:
        self._run, self._mq, self._owner, self._to = run, mq, owner, to
        self._choice, self._stock = choice, stock
        self._rows = max(1, min(TASK_ROWS, TASK_BYTES // max(stock.row_bytes, 1)))
        # From the first commit on, an older driver of this replay is fenced: nobody else moves it.
        last = mq.commit(owner, OPENED, ()).last
        self.at = max(stock.start, last - OPENED)

    def steps(self) -> Iterator[int]:
        """Publish what is missing; how many messages each step had."""
        while self.at < self._stock.stop:
            stop = min(self._stock.stop, self.at + STEP_TASKS * self._rows)
            tokens = spread(self._run.spark, self._tasks(stop), stage_range, StageToken)
            staged = [(self._to, token) for token in tokens if token.count]
            self._mq.commit(self._owner, stop + OPENED, staged)
            self.at = stop
            yield sum(token.count for _, token in staged)

    def _tasks(self, stop: int) -> list[ReplayTask]:
        run, stock, choice = self._run, self._stock, self._choice
        here = TopicRange(stock.topic, stock.topic_id, self.at, stop)
        return [
            ReplayTask(
                run.server,
                run.timeout,
                stock.topic,
                stock.within(each.start, each.stop),
                each.start,
                each.stop,
                choice.since,
                choice.until,
            )
            for each in cut([here], tasks_min=1, task_rows_max=self._rows)
        ]


@contextmanager
def _alone(path: str | Path) -> Generator[None]:
    try:
        yield
    except Fenced:
        raise Fenced(
            f"another process does this replay of {path} now: this one stops, and nothing is put "
            "twice"
        ) from None


def _stocks(place: ArchivePlace, choice: Choice) -> list[Stock]:
    known = place.topics()
    for name in choice.topics:
        if name not in known:
            there = ", ".join(sorted(known)) or "none yet"
            raise ConfigError(f"{place.path} has no topic {name!r}; it has {there}")
    wanted = sorted(choice.topics or known)
    store = store_of(place)
    return [store.stock(name, known[name]) for name in dict.fromkeys(wanted)]


def _wanted(mq: Client, to: str) -> int:
    """The identity of the topic that gets them; refused when it would store nothing."""
    info = storing(mq, to)
    if info is None:
        raise ConfigError(
            f"nobody would get the messages: {to!r} has no subscription and keeps nothing, or is "
            f"not there. Make it keep messages (once topic create {to} --retain 7d, or once topic "
            f"config {to} --retain 7d), or subscribe first"
        )
    return info.topic_id


def _owner(place: ArchivePlace, stock: Stock, target: int, choice: Choice) -> str:
    """Under which name the server remembers how far this replay is."""
    identity = place.id, stock.topic_id, target, choice.since, choice.until, choice.name
    return f"replay:{sha256(msgspec.json.encode(identity)).hexdigest()[:32]}"


def _micros(when: datetime | None) -> int | None:
    return None if when is None else (when.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
