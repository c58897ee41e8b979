"""A client that is being let in, while its own state is moved by a person, or its disk is full."""

from typing import Any, cast

import pytest

from oncemq.client.state.journal import Journal
from oncemq.client.verbs import messages as verbs
from oncemq.errors import Fenced, Locked, OnceMQError, StorageFull, StorageRefused, Unreachable
from oncemq.protocol.names import Generation, Micros, Offset
from oncemq.protocol.replies import RefusedReply
from oncemq.session.handshake import LogSeen
from tests.harness.client import Node, World

ALL = [f"orders@{offset}={letter}" for offset, letter in enumerate("abc")]


@pytest.fixture
def reader(world: World) -> Node:
    """A client that took three messages, of which the server has not heard, and was killed."""
    reader = world.client("reader")
    reader.run(verbs.subscribe(reader.engine, "orders", "new"))
    shop = world.client()
    shop.put("orders", b"a", b"b", b"c", lasting=False)
    shop.turn()
    assert reader.get("orders") == ALL
    reader.close()
    return reader


def accept(world: World, cursor: int) -> None:
    """A person accepts that the server lost something: `once client accept`."""
    journal = Journal(world.directory / "reader", "reader")
    here = LogSeen(b"", Generation(1))
    journal.accept(here, [("orders", Offset(cursor))])
    journal.close()


@pytest.mark.parametrize("pumps", [0, 1], ids=["only constructed", "with a claim"])
def test_a_client_that_started_while_a_loss_was_accepted_goes_on_where_it_was_accepted(
    world, reader, pumps
) -> None:
    again = world.client("reader")
    for _ in range(pumps):
        again.engine.fetch("orders", 100, 0)  # asked for before it is let in
        again.pump()
    accept(world, 1)
    assert again.get("orders") == ALL[1:]
    assert world.server.driver.broker.shard.by_name["orders"].subscriptions["reader"].cursor <= 1


def test_who_was_let_in_knows_the_generation_of_the_log_at_its_next_start(world, reader) -> None:
    world.server.log.generation = 2  # it has lost nothing that this client knows
    world.server.driver.begin(Micros(world.server.now))
    world.server.commit()
    again = world.client("reader")
    assert again.state.known().log.generation == 1
    again.turn()
    assert world.crashed("reader").state.known().log.generation == 2


def test_a_client_that_was_let_in_before_a_loss_was_accepted_must_stop(world, reader) -> None:
    again = world.client("reader")
    messages = again.take("orders")
    again.turn()
    accept(world, 1)
    shop = world.client()
    shop.put("orders", b"d", lasting=False)
    shop.turn()
    messages = again.take("orders")
    with pytest.raises(Fenced):
        verbs.settle(again.engine, messages)


# ------------------------------------------------------------------ a disk that fails meanwhile


class Faulty:
    """A journal whose calls of one name fail, a few times."""

    def __init__(self, journal: Any, call: str, error: OnceMQError, times: int) -> None:
        self._journal, self._call, self._error, self._left = journal, call, error, times

    def __getattr__(self, name: str) -> Any:
        if name == self._call and self._left:
            self._left -= 1
            raise self._error
        return getattr(self._journal, name)


def starting(world: World, call: str, error: OnceMQError, times: int) -> Node:
    """The third start of a client, with such a journal."""
    for _ in range(2):
        earlier = world.client("shop")
        earlier.turn()
        earlier.close()
    shop = world.client("shop")
    shop.state.journal = cast(Any, Faulty(shop.state.journal, call, error, times))
    return shop


FULL = StorageFull("the disk of this client is full: state.db could not be written")


@pytest.mark.parametrize("error", [FULL, Locked("state.db was held by another process")])
@pytest.mark.parametrize("call", ["claim", "granted"])
def test_a_disk_without_room_is_a_state_to_come_out_of(world, call, error) -> None:
    shop = starting(world, call, error, times=3)
    assert shop.run(verbs.subscribe(shop.engine, "orders", "new")) is True
    assert shop.engine.failure is None


def test_a_disk_without_room_for_the_newer_generation_is_one_as_well(world) -> None:
    shop = starting(world, "know", FULL, times=2)
    world.server.driver.broker.shard.generations.began(Generation(2))
    assert shop.run(verbs.subscribe(shop.engine, "orders", "new")) is True


@pytest.mark.parametrize("call", ["claim", "granted"])
def test_who_gives_up_meanwhile_is_told_of_the_disk(world, call) -> None:
    shop = starting(world, call, FULL, times=99)
    shop.turn()
    waited_in_vain = shop.engine.gave_up(3, "an answer")
    assert isinstance(waited_in_vain, StorageFull)
    assert "the disk of this client is full" in waited_in_vain.detail
    assert shop.engine.next_deadline() is not None  # nobody has to call it: it tries again


@pytest.mark.parametrize("call", ["claim", "granted"])
def test_a_disk_that_fails_otherwise_is_the_end_of_this_client_in_words(world, call) -> None:
    error = StorageRefused("state.db cannot be used: disk I/O error")
    shop = starting(world, call, error, times=1)
    for _ in range(2):
        with pytest.raises(StorageRefused, match="disk I/O error"):
            shop.run(verbs.subscribe(shop.engine, "orders", "new"))


def test_an_answer_that_cannot_be_taken_is_the_end_of_the_client_for_all_who_wait(
    world, reader, monkeypatch
) -> None:
    """Its exchange is over: to wait for it any longer would be in vain."""
    again = world.client("reader")
    again.turn()
    other = again.put("orders", b"unanswered")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("planned")

    monkeypatch.setattr(vars(again.engine)["_fetches"], "_came", broken)
    fetched = again.engine.fetch("orders", 1, 0)
    with pytest.raises(ZeroDivisionError):
        again.turn()
    assert again.engine.failure is not None
    assert again.engine.failure.code == "client_failed"
    with pytest.raises(OnceMQError, match="planned"):
        other.result()
    assert not fetched.done
    with pytest.raises(OnceMQError, match="start it again"):
        again.take("orders")
    assert not isinstance(again.engine.failure, Unreachable)


def test_a_client_that_is_refused_when_it_arrives_is_told_why(world: World) -> None:
    shop = world.client("shop")
    shop.engine._arrival.begin()
    shop.engine._arrival._answered(RefusedReply("name_invalid", "no client is called so"))
    assert isinstance(shop.engine.failure, OnceMQError)
    assert shop.engine.failure.detail == "no client is called so"


def test_a_client_whose_knowledge_the_server_does_not_compare_is_told_why(world: World) -> None:
    shop = world.client("shop")
    compared: list[Any] = []
    shop.engine._arrival._compare(shop.engine.state.known(), compared.append)
    _, question, _ = shop.engine.outgoing.wanted[-1]
    shop.engine._arrival.on_reply(question, RefusedReply("invalid", "no such question"), ())
    assert isinstance(shop.engine.failure, OnceMQError)
    assert (shop.engine.failure.detail, compared) == ("no such question", [])
