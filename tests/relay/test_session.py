"""One stay of a relay, turn by turn: a real database, and a courier whose answers a test gives."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from oncemq.protocol.names import Offset, TopicId
from oncemq.protocol.replies import PutAccepted, RefusedReply, Resumed
from oncemq.relay import session as module
from oncemq.relay.database import RelayDatabase
from oncemq.relay.session import RelaySession
from oncemq.relay.tables import format_ids
from oncemq.relay.topic_relay import TopicRelay
from oncemq.wire.batch import Item
from tests.relay.conftest import Homes
from tests.relay.homes import Home


class Courier:
    """Keeps what is under way until it is answered; a wait answers the oldest."""

    def __init__(self, home: Home, *refusals: RefusedReply) -> None:
        self.message_bytes = 100
        self.refusals = list(refusals)  # of the first puts
        self.said: list[str] = []
        self.most = 0  # under way at once
        self._home = home
        self._waiting: list[tuple[TopicRelay, int]] = []  # how many rows, 0 for an ask

    @property
    def under_way(self) -> int:
        return len(self._waiting)

    def ask(self, errand: TopicRelay) -> None:
        self._begin(errand, 0, f"ask {errand.standing.topic}")

    def put(self, errand: TopicRelay, items: Sequence[Item]) -> None:
        errand.sends += 1
        standing = errand.standing
        assert self._planned(standing.topic) == format_ids(standing.planned), "not committed"
        texts = b" ".join(item.payload for item in items).decode()
        self._begin(errand, len(items), f"put {standing.topic}#{standing.first_sequence}: {texts}")

    def wait(self, stopping: threading.Event) -> None:
        assert not stopping.is_set()
        errand, rows = self._waiting.pop(0)
        standing = errand.standing
        if not rows:
            errand.resumed(Resumed(standing.topic_id, standing.acknowledged))
        elif self.refusals:
            errand.refused(self.refusals.pop(0))
        else:
            errand.accepted(PutAccepted(TopicId(7), Offset(0), rows, True, False, 0))

    def _begin(self, errand: TopicRelay, rows: int, words: str) -> None:
        assert not errand.under_way
        errand.under_way = True
        self._waiting.append((errand, rows))
        self.said.append(words)
        self.most = max(self.most, self.under_way)

    def _planned(self, topic: str) -> str:
        sql = f"SELECT planned FROM oncemq_outbox_topics WHERE topic = '{topic}'"
        return self._home.look(sql)[0][0]


class Rest:
    """The wait for a commit. What happens meanwhile, one after the other; then the stay ends."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self._meanwhile = list(meanwhile)

    def wait(self, seconds: float, stopping: threading.Event) -> None:
        assert seconds == module.LOOK_SECONDS
        if self._meanwhile:
            self._meanwhile.pop(0)()
        else:
            stopping.set()


@pytest.fixture
def home(make_home: Homes) -> Home:
    return make_home("sqlite3")


@pytest.fixture
def desk(home: Home) -> Iterator[RelayDatabase]:
    with closing(RelayDatabase(home.connect)) as desk:
        yield desk


def stay(
    desk: RelayDatabase, courier: Any, *meanwhile: Callable[[], object], sets_aside: bool = False
) -> None:
    """Serve until there is nothing to do, after all that happens meanwhile."""
    session: Any = RelaySession(desk, courier, sets_aside=sets_aside, required=True)
    session._watch = Rest(*meanwhile)
    session.serve(threading.Event())


@pytest.mark.parametrize("most", [1, 2, 4])
def test_topics_take_turns_and_no_more_are_under_way_than_may(
    home: Home, desk: RelayDatabase, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(module, "ACTIVE_MAX", most)
    monkeypatch.setattr("oncemq.relay.tables.ROWS_MAX", 2)
    for topic in "dbca":
        home.write(topic, [b"1", b"2", b"3"])
    courier = Courier(home)
    stay(desk, courier)
    assert (home.left, courier.most) == (0, most)
    assert courier.said[:4] == ["ask a", "ask b", "ask c", "ask d"]
    assert sorted(courier.said[4:]) == [
        text for topic in "abcd" for text in (f"put {topic}#1: 1 2", f"put {topic}#3: 3")
    ]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_topics_with_a_lasting_backlog_leave_others_their_turn(
    home: Home, desk: RelayDatabase, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(module, "ACTIVE_MAX", most)
    monkeypatch.setattr("oncemq.relay.tables.ROWS_MAX", 1)
    for topic in "abcd":
        home.write(topic, [b"1", b"2", b"3"])
    courier = Courier(home)
    stay(desk, courier)
    puts = [words.split()[1] for words in courier.said if words.startswith("put")]
    rounds = [puts[:4], puts[4:8], puts[8:]]
    assert [sorted(each) for each in rounds] == [
        [f"{topic}#{number}:" for topic in "abcd"] for number in (1, 2, 3)
    ]
    assert (home.left, courier.most) == (0, most)


def test_what_is_put_off_is_sent_again_as_it_was(
    home: Home, desk: RelayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_FIRST", 0.0)
    home.write("orders", [b"1", b"2"])
    courier = Courier(home, RefusedReply("storage_full", ""), RefusedReply("storage_full", ""))
    more = partial(home.write, "orders", [b"3"])
    stay(desk, courier, more, lambda: None)
    assert courier.said == ["ask orders", *["put orders#1: 1 2"] * 3, "put orders#3: 3"]
    assert home.left == 0


def test_a_topic_that_stopped_is_left_alone_until_a_person_lets_it_go_on(
    home: Home, desk: RelayDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncemq.relay")
    home.write("orders", [b"1"])
    courier = Courier(home, RefusedReply("not_allowed", "not you"))
    go_on = partial(
        home.look, "UPDATE oncemq_outbox_topics SET stopped = '', version = version + 1"
    )
    stay(
        desk,
        courier,
        partial(home.write, "orders", [b"2"]),
        partial(home.write, "refunds", [b"r"]),
        go_on,
    )
    assert courier.said == [
        "ask orders", "put orders#1: 1", "ask refunds", "put refunds#1: r",
        "ask orders", "put orders#1: 1", "put orders#2: 2",
    ]  # fmt: skip
    assert home.left == 0
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("ERROR", "topic stopped topic=orders: not_allowed: not you"),
        ("INFO", "topic goes on topic=orders"),
    ]


def test_a_refused_row_is_set_aside_and_the_others_go(home: Home, desk: RelayDatabase) -> None:
    home.write("orders", [b"1", b"2", b"3"])
    courier = Courier(home, *[RefusedReply("not_allowed", "not you")] * 2)
    stay(desk, courier, sets_aside=True)
    assert courier.said == [
        "ask orders", "put orders#1: 1 2 3", "ask orders", "put orders#1: 1", "ask orders",
        "ask orders", "put orders#1: 2", "put orders#2: 3",
    ]  # fmt: skip
    assert home.look("SELECT payload, failed FROM oncemq_outbox") == [
        (b"1", "not_allowed: not you")
    ]


def test_rows_that_are_gone_stop_their_topic_and_nothing_is_sent(
    home: Home, desk: RelayDatabase
) -> None:
    home.write("orders", [b"1", b"2"])
    home.look(
        "INSERT INTO oncemq_outbox_topics (topic, producer, planned) "
        "VALUES ('orders', x'00', '1-3')"
    )
    courier = Courier(home)
    stay(desk, courier)
    assert courier.said == ["ask orders"]
    (stopped,) = home.look(
        "SELECT stopped LIKE '%by another hand%', planned, version FROM oncemq_outbox_topics"
    )
    assert stopped == (1, "1-3", 1)
    assert home.left == 2


@pytest.mark.parametrize(
    ("stopped", "told", "said"),
    [
        ("because", [("ERROR", "topic stopped topic=orders: because")], []),
        ("unwanted: …",
         [("WARNING", "topic waits topic=orders: unwanted: …"),
          ("INFO", "topic goes on topic=orders")],
         ["ask orders", "put orders#1: 1"]),
    ],
)  # fmt: skip
def test_a_topic_that_a_relay_finds_stopped_is_named_once(
    home: Home, desk: RelayDatabase, caplog: pytest.LogCaptureFixture,
    stopped: str, told: list[tuple[str, str]], said: list[str],
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO, "oncemq.relay")
    home.write("orders", [b"1"])
    home.look(
        "INSERT INTO oncemq_outbox_topics (topic, producer, stopped) "
        f"VALUES ('orders', x'00', '{stopped}')"
    )
    courier = Courier(home)
    stay(desk, courier, lambda: None)
    assert courier.said == said
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == told
