"""`once client accept`: all a state knows is compared, and it moves to what the server has."""

import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from oncemq.client.admin import accepting
from oncemq.client.admin.accepting import ClientFiles, Loss
from oncemq.client.verbs import messages
from oncemq.errors import HistoryLost, Locked, StaleState, StorageRefused
from oncemq.protocol.client_replies import LostCursor, LostNumbers
from oncemq.protocol.names import Epoch, Generation, Offset, ProducerId, Sequence
from oncemq.session.handshake import LogSeen
from oncemq.storage.segments.layout import raise_generation


@pytest.fixture
def asked(world: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Questions go to the server of the test; they are noted."""
    found: list[Any] = []

    @contextmanager
    def ask(server: Any, timeout: float) -> Generator[Callable[[Any], Any]]:
        node = world.client()
        node.turn()

        def answer(request: Any) -> Any:
            found.append(request)
            return node.run(messages.ask(node.engine, lambda _: request))

        yield answer

    monkeypatch.setattr(accepting, "asking", ask)
    return found


def files(world: Any, client: str) -> ClientFiles:
    return ClientFiles(client, world.directory / client, secrets.token_bytes)


@pytest.fixture
def back(world: Any) -> Callable[[], None]:
    """After it the server has only what it had when the fixture was asked for."""
    backup = world.directory / "backup"

    def go_back() -> None:
        world.server.log.close()
        shutil.rmtree(world.server.directory)
        shutil.copytree(backup, world.server.directory)
        disk, where = world.server.log._disk, str(world.server.directory)
        raise_generation(disk, where, secrets.token_bytes)
        world.server.start()

    for name in ("shop", "reader"):
        world.client(name).turn()
    shop, reader = world.nodes
    for topic in ("orders", "refunds"):
        reader.run(messages.subscribe(reader.engine, topic, "new"))
        shop.put(topic, b"1")
    shop.turn()
    assert sorted(reader.get("orders") + reader.get("refunds")) == ["orders@0=1", "refunds@0=1"]
    shutil.copytree(world.server.directory, backup)
    for number in range(2, 5):
        shop.put("orders", b"%d" % number)
    shop.turn()
    assert len(reader.get("orders")) == 3
    for node in world.nodes:
        node.close()
    return go_back


def test_a_state_that_the_server_agrees_with_has_nothing_to_accept(
    world: Any, back: Any, asked: list[Any]
) -> None:
    for client in ("shop", "reader"):
        with files(world, client) as state:
            assert state.look("one", 5.0).is_nothing
    (of_shop, of_reader) = asked
    assert {(each.topic, each.acknowledged) for each in of_shop.numbers} == {
        ("orders", 4),
        ("refunds", 1),
    }
    assert [(each.topic, each.cursor) for each in of_reader.cursors] == [
        ("orders", 4),
        ("refunds", 1),
    ]


def test_what_is_lost_is_told_and_a_state_that_accepted_it_goes_on(
    world: Any, back: Any, asked: list[Any]
) -> None:
    back()
    with files(world, "shop") as state:
        loss = state.look("one", 5.0)
        assert [(each.topic, each.last_sequence) for each in loss.numbers] == [("orders", 1)]
        assert (loss.cursors, loss.is_nothing, loss.is_another_log) == ([], False, False)
        state.accept(loss)
    with files(world, "shop") as state:
        assert state.look("one", 5.0).numbers == []
    with files(world, "reader") as state:
        loss = state.look("one", 5.0)
        assert [(each.topic, each.known, each.end) for each in loss.cursors] == [("orders", 4, 1)]
        assert (loss.numbers, loss.is_nothing) == ([], False)
        state.accept(loss)
    with files(world, "reader") as state:
        assert state.look("one", 5.0).cursors == []
    shop, reader = world.client("shop"), world.client("reader")
    for node in (shop, reader):
        node.turn()
    shop.put("orders", b"again")
    shop.turn(12)
    assert reader.get("orders") == ["orders@1=again"]


def test_what_was_not_sent_yet_is_not_asked_about_and_is_sent_after_it_was_accepted(
    world: Any, back: Any, asked: list[Any]
) -> None:
    shop = world.client("shop")
    shop.wire.cut()
    for payload in (b"5", b"6"):
        shop.put("orders", payload)
    shop.close()
    back()
    with files(world, "shop") as state:
        state.accept(state.look("one", 5.0))
    numbers = {each.topic: each.acknowledged for each in asked[0].numbers}
    assert numbers == {"orders": 4, "refunds": 1}
    shop = world.client("shop")
    shop.turn(12)
    assert shop.engine.failure is None
    assert world.server.stored("orders") == [b"1", b"5", b"6"]


def test_without_accepting_the_client_is_refused(world: Any, back: Any) -> None:
    back()
    shop = world.client("shop")
    shop.turn(6)
    shop.put("orders", b"5")
    shop.turn(12)
    assert isinstance(shop.engine.failure, HistoryLost)


def test_more_than_a_page_is_asked_in_pages(
    world: Any, back: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "PAGE", 1)
    back()
    for client, kind in (("shop", "numbers"), ("reader", "cursors")):
        asked.clear()
        with files(world, client) as state:
            loss = state.look("one", 5.0)
        pages = [[each.topic for each in getattr(request, kind)] for request in asked]
        assert pages == [["orders"], ["refunds"]]
        assert [each.topic for each in getattr(loss, kind)] == ["orders"]


def test_a_state_that_is_not_there_or_in_use_is_refused(world: Any) -> None:
    with pytest.raises(StorageRefused, match="no state of client 'shop'"):
        files(world, "shop")
    shop = world.client("shop")
    shop.turn()
    shop.put("orders", b"1")
    shop.turn()
    with pytest.raises(Locked, match="is running"):
        files(world, "shop")
    shop.close()
    for _ in range(2):  # whoever looks lets go of it
        with files(world, "shop"):
            pass


def test_a_state_that_cannot_be_opened_is_let_go_whole(world: Any) -> None:
    shop = world.client("shop")
    shop.turn()
    shop.put("orders", b"1")
    shop.close()
    with pytest.raises(StorageRefused, match="belongs to client 'shop'"):
        ClientFiles("bob", world.directory / "shop", secrets.token_bytes)
    with files(world, "shop"):
        pass


def test_an_old_copy_of_a_state_is_told_and_has_nothing_to_accept(
    world: Any, asked: list[Any]
) -> None:
    shop = world.client("shop")
    shop.turn()
    shop.close()
    shutil.copytree(world.directory / "shop", world.directory / "copy")
    again = world.client("shop")
    again.turn()
    again.close()
    with files(world, "shop") as state:
        assert state.look("one", 5.0).is_nothing
    with (
        ClientFiles("shop", world.directory / "copy", secrets.token_bytes) as state,
        pytest.raises(StaleState, match=r"knows epoch 1, and this server has granted 2 since"),
    ):
        state.look("one", 5.0)


PARTED = "another branch of history"
ONE, OTHER = b"1" * 16, b"2" * 16
CURSOR = LostCursor("orders", Offset(9), Offset(7), Offset(7), Offset(7))
NUMBERS = LostNumbers("orders", ProducerId(b"p" * 16), Sequence(9), Sequence(7))


@pytest.mark.parametrize(
    ("known", "here", "last", "granted", "lost", "nothing", "another"),
    [
        ((ONE, 2), (ONE, 2), 5, 5, (), True, False),
        ((ONE, 1), (ONE, 2), 5, 6, (), True, False),
        ((b"", 0), (ONE, 2), 5, 5, (), True, False),
        ((ONE, 2), (ONE, 2), 6, 5, (), False, False),
        ((OTHER, 2), (ONE, 2), 5, 5, (), False, True),
        ((ONE, 2), (ONE, 2), 5, 5, (PARTED,), False, False),
        ((ONE, 2), (ONE, 2), 5, 5, (CURSOR,), False, False),
        ((ONE, 2), (ONE, 2), 5, 5, (NUMBERS,), False, False),
    ],
)
def test_nothing_is_lost_only_when_nothing_at_all_is(
    known: tuple[bytes, int],
    here: tuple[bytes, int],
    last: int,
    granted: int,
    lost: tuple[Any, ...],
    nothing: bool,
    another: bool,
) -> None:
    loss = Loss(
        LogSeen(known[0], Generation(known[1])),
        LogSeen(here[0], Generation(here[1])),
        Epoch(last),
        Epoch(granted),
        [each for each in lost if isinstance(each, LostCursor)],
        [each for each in lost if isinstance(each, LostNumbers)],
        PARTED in lost,
    )
    assert (loss.is_nothing, loss.is_another_log) == (nothing, another)


@pytest.mark.parametrize("name", ["other", "other.*"])
@pytest.mark.parametrize("answer_is_lost", [False, True])
def test_what_a_client_ended_and_took_nothing_of_is_told_when_it_is_there_again(
    world: Any, back: Any, asked: list[Any], name: str, answer_is_lost: bool
) -> None:
    reader, backup = world.client("reader"), world.directory / "backup"
    reader.turn()
    reader.run(messages.subscribe(reader.engine, name, "new"))
    shutil.rmtree(backup)
    shutil.copytree(world.server.directory, backup)
    lost = count(0 if answer_is_lost else 1)
    reader.wire.lose = lambda _: next(lost) < 1
    assert reader.run(messages.unsubscribe(reader.engine, name)) is not answer_is_lost
    reader.close()
    back()
    with files(world, "reader") as state:
        loss = state.look("one", 5.0)
        assert [(each.topic, each.known) for each in loss.again] == [(name, -1)]
        state.accept(loss)
    reader = world.client("reader")
    reader.turn(12)
    assert reader.run(messages.unsubscribe(reader.engine, name)) is True
