"""Listening against a real driver: pushed, pulled where that fails, acknowledged, left."""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from oncemq.client.engine import listening
from oncemq.client.engine.line import reachable
from oncemq.client.engine.listening import Listening
from oncemq.client.ticket import Ticket
from oncemq.client.verbs import messages as verbs
from oncemq.errors import NotSubscribed, OnceMQError, Refused
from oncemq.protocol.names import ClientId, Micros
from oncemq.protocol.replies import Done
from oncemq.wire import codec

SECOND = 1_000_000


class Ear:
    """The feed of a driver in this process. `lose`: nothing gets through."""

    def __init__(self, server) -> None:
        self.server = server
        self.descriptors: tuple[int, ...] = ()
        self.events: deque[bool] = deque()
        self.inbox: deque[list[bytes]] = deque()
        self.subjects: set[bytes] = set()
        self.address = ""
        self.lose = False

    def connect(self, address: str) -> None:
        self.address = address
        self.inbox.clear()
        if address:
            self.events.append(True)
            for subject in self.subjects:
                self.server.driver.pushes.changed(joined=True, subject=subject)

    def news(self) -> bool | None:
        return self.events.popleft() if self.events else None

    def tune(self, subjects: set[bytes]) -> None:
        for subject in subjects ^ self.subjects if self.address else ():
            joined = subject in subjects
            self.server.driver.pushes.changed(joined=joined, subject=subject)
        self.subjects = subjects

    def receive(self) -> list[bytes] | None:
        pushes = self.server.driver.pushes
        outgoing, pushes.outgoing = pushes.outgoing, []
        for frames in outgoing:
            if frames[0] in self.subjects and not self.lose:
                self.inbox.append([bytes(frame) for frame in frames])
        return self.inbox.popleft() if self.inbox else None

    def next_deadline(self) -> None: ...

    def close(self) -> None:
        self.connect("")


class Listener:
    """A client with an ear."""

    def __init__(self, world, name: str, *topics: str, feed: str = "tcp://0.0.0.0:5557") -> None:
        world.server.driver.broker.listeners.feed = feed
        self.server = world.server
        self.node = world.client(name)
        self.engine = self.node.engine
        self.ear = Ear(world.server)
        self.engine.listening._ear = self.ear
        self.topics = topics
        for topic in topics:
            self.node.run(verbs.subscribe(self.engine, topic, "new"))

    def hear(self, limit: int = 100, wait_ms: int = 1_000) -> list[str]:
        """What comes next, settled."""
        taking = self.engine.listening.take(self.topics, limit, wait_ms)
        messages = self.node.run(taking, 400)
        verbs.settle(self.engine, messages)
        return [message.id for message in messages]

    @property
    def live(self):
        return self.engine.listening.live

    @property
    def gets(self) -> int:
        return self.server.driver.broker.counters.sent


@pytest.fixture
def listener(world) -> Listener:
    listener = Listener(world, "ada", "orders")
    assert listener.hear() == []
    assert listener.engine.listening.is_live
    return listener


@pytest.fixture
def shop(world, listener):
    shop = world.client("shop")
    shop.turn()
    return shop


def test_a_client_that_is_closed_lets_go_of_the_feed(listener) -> None:
    assert listener.ear.address
    listener.engine.close()
    assert listener.ear.address == ""


def test_who_listens_before_being_let_in_is_let_in_all_the_same(world) -> None:
    early = Listener(world, "early")
    early.node.pump()  # the hello leaves
    taking = early.engine.listening.take(("orders",), 1, 1_000)
    next(taking)
    early.node.turn()
    assert early.engine.client_epoch is not None
    taking.close()


def listens(listener: Listener) -> bool:
    """Whether a Listen is on its way, or stands at the server."""
    listening, exchanges = listener.engine.listening, listener.engine.exchanges
    exchanges.carry_out(listener.engine.outgoing.take())
    return exchanges.is_asked(listening._said)


def told(error: OnceMQError | None = None) -> Ticket[Any]:
    """An answer."""
    ticket: Ticket[Any] = Ticket()
    if error is None:
        ticket.fill(Done(changed=False))
    else:
        ticket.fail(error)
    return ticket


def put(shop, *payloads: bytes, topic: str = "orders") -> None:
    shop.put(topic, *payloads)
    shop.turn(4)


def test_what_one_pump_leaves_on_the_feed_is_taken_by_the_next_at_once(
    shop, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor tells of it once: nobody would be woken for the rest."""
    monkeypatch.setattr(listening, "PUMP_MAX", 3)
    heard = listener.engine.listening
    for number in range(4):
        put(shop, b"%d" % number)
    heard.pump(listener.engine.now())
    assert heard.next_deadline() == 0
    heard.pump(listener.engine.now())
    assert heard.next_deadline() != 0


def test_messages_are_pushed_and_not_pulled(shop, listener: Listener) -> None:
    before = listener.gets
    for number in range(5):
        put(shop, b"%d" % number)
        assert listener.hear() == [f"orders@{number}"]
    assert listener.gets == before


def test_it_goes_to_the_feed_at_the_host_it_knows(listener: Listener) -> None:
    assert listener.ear.address == "tcp://0.0.0.0:5557"
    assert reachable("tcp://0.0.0.0:7", "tcp://mq.example:5556") == "tcp://mq.example:7"
    assert reachable("tcp://127.0.0.1:7", "tcp://[::1]:5556") == "tcp://[::1]:7"
    assert reachable("ipc:///tmp/once.feed", "ipc:///tmp/once") == "ipc:///tmp/once.feed"


def test_a_message_the_feed_lost_is_pulled_when_the_next_one_comes(shop, listener) -> None:
    listener.ear.lose = True
    put(shop, b"lost")
    listener.node.turn()
    listener.ear.lose = False
    put(shop, b"next")
    assert listener.hear() == ["orders@0", "orders@1"]
    assert listener.live.gaps == 1


def test_the_last_message_lost_comes_within_the_retry_time(shop, listener: Listener) -> None:
    listener.ear.lose = True
    put(shop, b"lost, and nothing after it")
    before = listener.server.now
    assert listener.hear(wait_ms=20_000) == ["orders@0"]
    assert listener.server.now - before < 3.5 * SECOND
    assert listener.engine.listening.nudges == 1


def test_what_is_settled_is_acknowledged_soon(shop, listener: Listener) -> None:
    put(shop, b"one")
    assert listener.hear() == ["orders@0"]
    for _ in range(12):
        listener.server.now += SECOND // 10
        listener.node.turn(1)
    assert listener.server.driver.broker.shard.by_name["orders"].settled == 1
    listener.server.now += 20 * SECOND
    listener.server.driver.tick(Micros(listener.server.now))
    listener.node.turn()
    assert listener.engine.listening.nudges == 0


def test_without_a_feed_it_pulls(world) -> None:
    listener = Listener(world, "ada", "orders", feed="")
    shop = world.client("shop")
    shop.turn()
    assert listener.hear() == []
    put(shop, b"one")
    assert listener.hear() == ["orders@0"]
    assert not listener.engine.listening.is_live


def test_while_the_feed_is_away_it_pulls_and_goes_on_with_it_when_it_is_back(
    shop, listener: Listener
) -> None:
    put(shop, b"0")
    assert listener.hear() == ["orders@0"]
    listener.ear.events.append(False)
    listener.ear.lose = True
    put(shop, b"1")
    assert listener.hear() == ["orders@1"]
    assert not listener.engine.listening.is_live
    put(shop, b"2")
    listener.ear.lose = False
    listener.ear.events.append(True)
    assert listener.hear() == ["orders@2"]
    assert listener.hear() == []
    assert listener.engine.listening.is_live
    before = listener.gets
    put(shop, b"3")
    assert listener.hear() == ["orders@3"]
    assert listener.gets == before


def test_a_server_that_starts_again_goes_on_where_it_was(shop, listener: Listener) -> None:
    put(shop, b"0", b"1")
    assert listener.hear(limit=1) == ["orders@0"]
    for node in (listener.node, shop):
        node.wire.cut()
    listener.ear.events.append(False)
    listener.server.crash()
    listener.server.driver.broker.listeners.feed = "tcp://0.0.0.0:6000"
    for node in (listener.node, shop):
        node.wire.mend()
    assert listener.hear() == ["orders@1"]
    put(shop, b"2")
    assert listener.hear() == ["orders@2"]
    assert listener.ear.address == "tcp://0.0.0.0:6000"


def test_several_topics_and_one_that_comes_later(world) -> None:
    listener = Listener(world, "ada", "orders", "refunds")
    listener.topics = ()
    shop = world.client("shop")
    shop.turn()
    assert listener.hear() == []
    put(shop, b"a")
    put(shop, b"b", topic="refunds")
    assert sorted(listener.hear() + listener.hear()) == ["orders@0", "refunds@0"]
    listener.node.run(verbs.subscribe(listener.engine, "returns", "new"))
    put(shop, b"c", topic="returns")
    assert listener.hear() == ["returns@0"]


def test_nothing_pushed_is_handed_out_after_the_subscription_ended(shop, listener) -> None:
    put(shop, b"before")
    listener.node.turn(1)  # it has come, and is not handed out yet
    listener.node.run(verbs.unsubscribe(listener.engine, "orders"))
    with pytest.raises(NotSubscribed):
        listener.hear()
    put(shop, b"nobody hears this")
    listener.node.run(verbs.subscribe(listener.engine, "orders", "new"))
    put(shop, b"after")
    assert listener.hear() == [f"orders@{1}"]


def test_what_was_taken_and_not_settled_comes_again(shop, listener: Listener) -> None:
    put(shop, b"0", b"1", b"2")
    listening = listener.engine.listening
    taken = listener.node.run(listening.take(listener.topics, 2, 1_000))
    assert len(taken) == 2
    listening.put_back(listener.topics)
    assert listener.hear() == ["orders@0", "orders@1", "orders@2"]


def test_leaving_is_answered_and_stops_the_feed(shop, listener: Listener) -> None:
    listening = listener.engine.listening
    assert ClientId("ada") in listener.server.driver.broker.listeners
    listening.leave(listener.topics)
    listener.node.turn()
    assert listening.goodbye.result().changed
    assert ClientId("ada") not in listener.server.driver.broker.listeners
    assert listener.ear.subjects == set()
    put(shop, b"one")
    assert listener.hear() == ["orders@0"]  # listening again begins with what is there


def test_a_damaged_push_is_as_good_as_lost(shop, listener: Listener) -> None:
    shop.put("orders", b"whole")
    shop.turn(4)
    pushes = listener.server.driver.pushes
    frames = [bytes(frame) for frame in pushes.outgoing.pop()]
    pushes.outgoing.append([*frames[:-1], b"\0" * len(frames[-1])])
    pushes.outgoing.append([frames[0], b"nonsense"])
    assert listener.hear() == ["orders@0"]


@pytest.mark.parametrize("lie", [{"runs": ()}, {"columns": 3}], ids=["no runs", "columns"])
def test_a_push_whose_head_lies_is_as_good_as_lost(shop, listener: Listener, lie: dict) -> None:
    """The checksum covers neither; who follows them leaves the body, and the client with it."""
    shop.put("orders", b"whole")
    shop.turn(4)
    pushes = listener.server.driver.pushes
    pushed, bodies = codec.decode_push(pushes.outgoing.pop())
    heads = tuple(msgspec.structs.replace(each, **lie) for each in pushed.batches)
    lying = msgspec.structs.replace(pushed, batches=heads)
    pushes.outgoing.append(codec.encode_push(lying, bodies))
    assert listener.hear() == ["orders@0"]


def test_a_server_without_room_is_listened_to_and_told_what_is_settled_later(
    shop, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shop, b"0", b"1")
    room = listener.server.log.has_room
    monkeypatch.setattr(listener.server.log, "has_room", lambda size, *, now_ms, fact=False: False)
    assert listener.hear(limit=1) == ["orders@0"]
    for _ in range(12):
        listener.server.now += SECOND // 10
        listener.node.turn(1)
    assert listener.hear(limit=1) == ["orders@1"]
    assert listens(listener)
    assert listener.server.driver.broker.shard.by_name["orders"].settled == 0
    monkeypatch.setattr(listener.server.log, "has_room", room)
    put(shop, b"2")
    assert listener.hear() == ["orders@2"]
    for _ in range(12):
        listener.server.now += SECOND // 10
        listener.node.turn(1)
    assert listener.server.driver.broker.shard.by_name["orders"].settled == 3


def test_a_server_without_a_feed_is_pulled_from_at_once(world) -> None:
    listener, shop = Listener(world, "ada", "orders", feed=""), world.client("shop")
    put(shop, b"0")
    before = listener.server.now
    assert listener.hear(wait_ms=20_000) == ["orders@0"]
    assert listener.server.now - before < listening.PATIENCE_MICROS


def test_a_feed_that_nobody_reaches_is_waited_for_only_so_long(
    world, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, shop = Listener(world, "ada", "orders"), world.client("shop")
    monkeypatch.setattr(listener.ear, "connect", lambda _: None)
    put(shop, b"0")
    before = listener.server.now
    assert listener.hear(wait_ms=20_000) == ["orders@0"]
    waited = listener.server.now - before
    assert listening.PATIENCE_MICROS <= waited < listening.PATIENCE_MICROS + SECOND


def test_a_listen_that_stood_its_time_is_said_again(listener: Listener) -> None:
    listener.engine.outgoing.give_up(listener.engine.listening._said)
    listener.engine.listening._stood(told())
    assert listens(listener)


ANSWERS: dict[str, Callable[[Listening, Ticket[Any]], None]] = {
    "that stood": lambda heard, answer: heard._stood(answer),
    "that joined": lambda heard, answer: heard._joined(answer),
    "that fetched": lambda heard, answer: heard._fetched(answer),
    "that pulled": lambda heard, answer: heard._pulled("orders", answer),
}


@pytest.mark.parametrize("answered", ANSWERS.values(), ids=ANSWERS)
def test_who_waits_is_told_what_a_request_met(
    listener: Listener, answered: Callable[[Listening, Ticket[Any]], None]
) -> None:
    heard = listener.engine.listening
    taking = heard.take(listener.topics, 1, 9_000)
    next(taking)
    error = Refused("no more of this")
    answered(heard, told(error))
    with pytest.raises(Refused) as met:
        taking.send(None)
    assert met.value is error


def test_a_topic_that_ended_while_it_was_pulled_is_asked_about(listener: Listener) -> None:
    heard = listener.engine.listening
    taking = heard.take(listener.topics, 1, 9_000)
    waiting = next(taking)
    before = heard._said
    heard._pulled("orders", told(NotSubscribed("not subscribed to orders")))
    assert (waiting.done, heard._said != before, listens(listener)) == (False, True, True)
    heard.leave(listener.topics)
    token = heard._said
    heard._pulled("orders", told(NotSubscribed("not subscribed to orders")))
    assert heard._said == token  # nobody listens any more
    taking.close()


def test_a_get_that_waits_while_the_feed_is_joined_gets_what_comes_then(world) -> None:
    """The listener's wait was over: what is under way is the get's."""
    listener = Listener(world, "ada", "orders")
    shop = world.client("shop")
    shop.turn()
    engine = listener.engine
    with pytest.raises(StopIteration):  # it asks to join, and waits for nothing
        next(engine.listening.take(listener.topics, 100, 0))
    getting = verbs.take(engine, "orders", 9, 20_000)
    next(getting)
    assert not engine.listening.is_live
    listener.node.turn(12)
    assert engine.listening.is_live
    put(shop, b"0")
    assert [each.id for each in listener.node.run(getting)] == ["orders@0"]


def test_a_get_whose_fetch_is_given_up_asks_again_before_it_says_that_nothing_is_there(
    world,
) -> None:
    listener = Listener(world, "ada", "orders")
    shop = world.client("shop")
    shop.turn()
    put(shop, b"0")
    getting = verbs.take(listener.engine, "orders", 9, 0)
    ticket = next(getting)
    listener.engine._fetches.forget("orders")  # as joining the feed does
    assert ticket.done
    assert [each.id for each in listener.node.run(getting)] == ["orders@0"]


def test_a_pull_that_fails_while_nobody_waits_is_told_to_nobody(listener: Listener) -> None:
    listening = listener.engine.listening
    listening._fetched(told(OnceMQError("refused")))
    waiting: Ticket[None] = Ticket()
    listening._waiting = waiting
    listening._fetched(told())
    assert waiting.done
    assert waiting.error is None
