"""How a relay ends, and what it is given: a place, a connection, its turn, a server's answers."""

import inspect
import logging
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq import DatabaseRefused, Fenced, OnceMQError, Relay
from oncemq.errors import Unreachable
from oncemq.protocol.client_replies import ClientList
from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.replies import Resumed
from oncemq.relay.database import RelayDatabase
from oncemq.relay.opening import connector
from oncemq.relay.publisher import RelayPublisher
from oncemq.relay.relay import TURN_SECONDS
from oncemq.relay.topic_relay import TopicRelay, TopicStanding
from tests.e2e.processes import until
from tests.relay.conftest import Homes
from tests.relay.test_pauses import Stopping

NOWHERE = "tcp://127.0.0.1:1"


def failed(relay: Relay) -> bool:
    return relay.failure is not None


def test_what_ended_a_relay_is_raised_where_its_block_ends() -> None:
    relay = Relay(lambda: object(), server=NOWHERE, id="r")
    assert repr(relay) == f"<Relay r to {NOWHERE}: rests>"
    with pytest.raises(DatabaseRefused, match="not a connection we know") as caught, relay:
        until(lambda: failed(relay), what="it ends")
    assert caught.value is relay.failure
    assert repr(relay) == f"<Relay r to {NOWHERE}: ended by {relay.failure!r}>"


def test_what_ended_a_relay_hides_no_error_of_its_block() -> None:
    relay = Relay(lambda: object())

    def block() -> None:
        with relay:
            until(lambda: failed(relay), what="it ends")
            raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        block()


@pytest.mark.parametrize("lost", [True, False])
def test_who_is_fenced_ends_unless_its_database_was_lost_before(
    make_home: Homes, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """With the database it lost its turn: the one who has it now is to be waited for."""
    stays: list[RelayDatabase] = []

    class Session:
        def __init__(self, desk: RelayDatabase, courier: RelayPublisher, **how: bool) -> None:
            assert how == {"sets_aside": True, "required": False}
            stays.append(desk)

        def serve(self, stopping: threading.Event) -> None:
            if len(stays) > 1:
                stopping.set()
                return
            if lost:
                stays[0].driver.close()
            raise Fenced("another relay")

    monkeypatch.setattr("oncemq.relay.relay.RelaySession", Session)
    connect = make_home("sqlite3").connect
    relay = Relay(connect, server=NOWHERE, set_aside=True, required=False)
    if lost:
        relay.run()
    else:
        with pytest.raises(Fenced):
            relay.run()
    assert len(stays) == (2 if lost else 1)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        stays[-1].driver.execute("SELECT 1")


@pytest.mark.parametrize(
    ("locks", "turn", "pauses"),
    [([True], True, 0), ([False, False, True], True, 2), ([], False, 3)],
)
def test_a_relay_waits_for_its_turn_and_says_so_once(
    caplog: pytest.LogCaptureFixture, locks: list[bool], turn: bool, pauses: int
) -> None:
    caplog.set_level(logging.INFO, "oncemq.relay")
    relay: Any = object.__new__(Relay)
    relay._stopping = Stopping(3)
    left = iter(locks)
    assert (
        relay._our_turn(
            SimpleNamespace(lock=lambda: next(left, False), must_have_its_name=lambda: None)
        )
        is turn
    )
    assert relay._stopping.pauses == [TURN_SECONDS] * pauses
    said = ["another relay is at work; waiting for its end"] if pauses else []
    assert caplog.messages == said


class Odd:
    """No connection of any library."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_a_connection_that_cannot_be_used_is_closed() -> None:
    odd = Odd()
    with pytest.raises(DatabaseRefused, match="not a connection we know"):
        RelayDatabase(lambda: odd)
    assert odd.closed


def test_a_session_of_sqlalchemy_is_no_connection(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'user.db'}")
    with pytest.raises(DatabaseRefused, match=r"give it `engine\.connect`, not a session"):
        RelayDatabase(lambda: orm.Session(engine))


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_connection_of_any_habit_commits_by_itself(autocommit: bool) -> None:
    """As sqlite3 has it from Python 3.12 on."""
    desk: Any = object.__new__(RelayDatabase)
    desk.driver = SimpleNamespace(isolation_level="", autocommit=autocommit)
    desk._begin_nothing()
    assert vars(desk.driver) == {"isolation_level": None, "autocommit": True}


def test_a_sqlite_file_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "user.db"
    for place in (str(path), f"sqlite:///{path}"):
        with pytest.raises(DatabaseRefused, match=f"there is no database '{path}'"):
            connector(place)
    assert not path.exists()
    path.touch()
    for place in (str(path), f"sqlite:///{path}"):
        connection = connector(place)()
        assert connection.execute("PRAGMA database_list").fetchone()[2] == str(path)
        connection.close()


def test_what_a_place_of_postgresql_connects_with() -> None:
    psycopg = pytest.importorskip("psycopg")
    with pytest.raises(psycopg.OperationalError):
        connector("postgresql://127.0.0.1:1/name?connect_timeout=2")()
    pytest.importorskip("asyncpg")
    awaited = connector("postgresql+asyncpg://127.0.0.1:1/name")()
    assert inspect.iscoroutine(awaited)
    awaited.close()


class Silence:
    """The wait for a server that does not answer."""

    def wait_until(self, *_: object) -> None:
        raise Unreachable("nobody is there")


def test_a_server_that_is_silent_is_named_once_until_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oncemq.relay")
    courier: Any = RelayPublisher(NOWHERE, "relay")
    turns, courier._turns = courier._turns, Silence()
    errand = TopicRelay(TopicStanding("orders", ProducerId(b"p")))
    for _ in range(2):
        for _ in range(3):
            courier.wait(threading.Event())
        courier._answered(errand, Resumed(TopicId(0), Sequence(0)))
        courier._answered(errand, Resumed(TopicId(0), Sequence(0)))
    once = ["no answer, going on trying: nobody is there", "the server answers again"]
    assert caplog.messages == once * 2
    with pytest.raises(OnceMQError, match="no answer to a put: ClientList"):
        courier._answered(errand, ClientList((), more=False))
    courier._turns = turns
    courier.close()
