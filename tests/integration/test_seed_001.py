"""What seed 001 describes: get from any topic, a server that is away, crashes on either side."""

from pathlib import Path
from typing import Any

import pytest

from oncemq import Client, Unreachable
from oncemq.protocol.client_requests import Compare, ForgetClient, ListClients
from oncemq.protocol.names import (
    STAGE_NAME,
    ClientId,
    Epoch,
    Generation,
    Offset,
    ProducerId,
    Sequence,
)
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.requests import (
    REQUESTS,
    CommitRequest,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DropStage,
    Get,
    Hello,
    Lease,
    Leave,
    Listen,
    ListSubscriptions,
    ListTopics,
    Put,
    Read,
    Request,
    Resume,
    Settle,
    ShowTopic,
    StagePut,
    StatusRequest,
    Subscribe,
    Unsubscribe,
    WatchEnds,
)
from oncemq.wire import batch, codec
from tests.e2e.peer import ANYONE, PRODUCER, peer, put_of
from tests.e2e.processes import Nursery, Process, Relay, Serving, relay, until
from tests.integration.conftest import Connect


def payloads(messages: list) -> list[bytes]:
    return [message.payload for message in messages]


# ------------------------------------------------------------------ get from any topic


def test_a_get_without_a_topic_gives_the_oldest_message_of_any_subscribed_topic(
    server: str, connect: Connect
) -> None:
    subscriber, publisher = connect(server, "ada"), connect(server, "press")
    for topic in ("b", "a", "c"):
        subscriber.subscribe(topic)
    publisher.subscribe("unsubscribed")
    order = [("c", b"1"), ("a", b"2"), ("unsubscribed", b"-"), ("c", b"3"), ("b", b"4")]
    for topic, payload in order:
        publisher.put(topic, payload)
    one_by_one = [subscriber.get()[0] for _ in range(2)]
    the_rest = subscriber.get(limit=10)
    got = [(message.topic, message.payload) for message in one_by_one + the_rest]
    assert got == [each for each in order if each[0] != "unsubscribed"]
    assert subscriber.get() == []


def test_a_get_from_any_topic_and_one_from_a_topic_share_one_cursor(
    server: str, connect: Connect
) -> None:
    subscriber = connect(server, "ada")
    subscriber.subscribe("a")
    subscriber.subscribe("b")
    for number in range(4):
        subscriber.put("ab"[number % 2], b"%d" % number)
    assert payloads(subscriber.get()) == [b"0"]
    assert payloads(subscriber.get("b")) == [b"1"]
    assert payloads(subscriber.get()) == [b"2"]
    assert payloads(subscriber.get(limit=10)) == [b"3"]


@pytest.mark.parametrize("topics", ["aba", "abba", "abab", "aabbaa"])
def test_messages_of_several_topics_got_at_once_are_all_settled(
    server: str, connect: Connect, topics: str
) -> None:
    subscriber = connect(server, "ada")
    for topic in set(topics):
        subscriber.subscribe(topic)
    for topic in topics:
        subscriber.put(topic, b"once")
    assert [message.topic for message in subscriber.get(limit=10)] == list(topics)
    assert subscriber.get(limit=10) == []
    subscriber.put("a", b"next")
    assert payloads(subscriber.get(limit=10)) == [b"next"]


# ------------------------------------------------------------------ the server is away


def test_with_the_server_away_a_publisher_goes_on_and_its_puts_go_out_once_when_it_returns(
    serving: Serving, connect: Connect
) -> None:
    subscriber = connect(serving.address, "ada")
    subscriber.subscribe("news")
    publisher = connect(serving.address, "press")
    publisher.put("news", b"before")
    serving.kill()
    pending = [publisher.put("news", b"%d" % number, wait=False) for number in range(20)]
    assert publisher.unsent == 20
    serving.start()
    publisher.flush()
    assert publisher.unsent == 0
    expected = [b"before", *(b"%d" % number for number in range(20))]
    assert payloads(subscriber.get("news", limit=100)) == expected
    assert len(pending) == 20


def test_a_client_that_starts_while_the_server_is_away_gets_its_answer_when_it_comes(
    nursery: Nursery, tmp_path: Path, connect: Connect
) -> None:
    serving = Serving(nursery, tmp_path)
    publisher = connect(serving.address, "press")
    publisher.put_many("news", [b"early"], wait=False)
    with pytest.raises(Unreachable):
        publisher.flush(timeout=0.05)
    assert publisher.unsent == 1
    serving.start()
    publisher.flush()
    assert [topic.name for topic in publisher.topics()] == ["news"]
    serving.kill()


def test_a_publisher_that_ends_while_the_server_is_away_leaves_its_puts_to_its_next_start(
    serving: Serving, connect: Connect, tmp_path: Path
) -> None:
    subscriber = connect(serving.address, "ada")
    subscriber.subscribe("news")
    serving.kill()
    state = tmp_path / "press"
    publisher = connect(serving.address, "press", state=state, timeout=0.2)
    publisher.put_many("news", [b"one", b"two"], wait=False)
    publisher.close()  # in time, though nobody answers
    serving.start()
    again = connect(serving.address, "press", state=state)
    again.flush()
    again.put("news", b"three")
    assert payloads(subscriber.get("news", limit=10)) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("met", [True, False], ids=["knows-the-server", "never-met-it"])
def test_puts_called_unreachable_were_recorded_and_survive_a_crash_while_the_server_is_away(
    serving: Serving, connect: Connect, nursery: Nursery, tmp_path: Path, kind: str, met: bool
) -> None:
    subscriber = connect(serving.address, "ada")
    subscriber.subscribe("news")
    state = str(tmp_path / "press")
    publisher = nursery.start(
        "put_offline", "press", tmp_path, server=serving.address, id="press", state=state,
        topic="news", count=50, met=met, go=str(tmp_path / "go"), asyncio=kind == "asyncio",
    )  # fmt: skip
    publisher.noted("met")
    serving.kill()
    (tmp_path / "go").touch()
    publisher.noted("unreachable")
    publisher.kill()
    serving.start()
    again = connect(serving.address, "press", state=state)
    again.flush()
    expected = [b"%d" % number for number in range(50)]
    assert payloads(subscriber.get("news", limit=100)) == expected


def test_puts_of_a_block_that_raised_are_recorded_and_left_to_the_next_start(
    server: str, connect: Connect
) -> None:
    subscriber = connect(server, "ada")
    subscriber.subscribe("news")
    publisher = connect(server, "press")
    publisher.put_many("news", [b"one", b"two"], wait=False)
    publisher.put("news", b"three", wait=False)
    publisher.__exit__(ZeroDivisionError, ZeroDivisionError(), None)  # waits for nobody
    connect(server, "press").flush()
    assert payloads(subscriber.get("news", limit=10)) == [b"one", b"two", b"three"]


def test_a_get_that_waits_goes_on_waiting_on_the_server_that_returns(
    serving: Serving, connect: Connect, nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    publisher = connect(serving.address, "press")
    state = str(tmp_path / "ada")
    with Client(serving.address, id="ada", state=state) as subscriber:
        subscriber.subscribe("news")
    waits = nursery.start(
        "get_one", "ada", tmp_path, server=serving.address, id="ada", state=state, topic="news",
        asyncio=kind == "asyncio",
    )  # fmt: skip
    until(lambda: publisher.status()["waiting"] == 1, what="the get waits")
    serving.kill()
    serving.start()
    until(lambda: publisher.status()["waiting"] == 1, what="the get waits again")
    publisher.put("news", b"at last")
    assert waits.noted("got") == ["got", 0, "at last"]
    waits.kill()


# ------------------------------------------------------------------ crashes before the answer


A_PUT = codec.MAGIC + bytes((codec.VERSION, Put.opcode))  # how its frame begins


class Unanswered:
    """A put that reached the server, and whose answer did not come back."""

    def __init__(
        self, nursery: Nursery, tmp_path: Path, wire: Relay, serving: Serving, kind: str
    ) -> None:
        wire.hold_answers_after(A_PUT)
        self._options = {"id": "press", "state": str(tmp_path / "press")}
        self.publisher: Process = nursery.start(
            "put_one", "press", tmp_path, server=wire.address, topic="news", payload="once",
            asyncio=kind == "asyncio", **self._options,
        )  # fmt: skip
        self.publisher.noted("recorded")
        with Client(serving.address) as watcher:
            until(lambda: watcher.topic("news").topic.end == 1, what="the put is stored")
        assert ["stored"] not in [note[:1] for note in self.publisher.notes]

    def start_again(self, serving: Serving, connect: Connect) -> None:
        """The publisher's next start: sends what has no answer, then another."""
        again = connect(serving.address, "press", state=self._options["state"])
        again.flush()
        assert again.counters["duplicates"] == 1
        assert again.put("news", b"next").offset == 1


@pytest.fixture
def subscriber(serving: Serving, connect: Connect) -> Any:
    subscriber = connect(serving.address, "ada")
    subscriber.subscribe("news")
    return subscriber


def test_an_answer_that_is_lost_on_the_way_does_not_double_the_put(
    serving: Serving, connect: Connect, subscriber: Any
) -> None:
    with relay(serving.address) as wire:
        publisher = connect(wire.address, "press")
        publisher.put("news", b"zero")
        wire.hold_answers()
        publisher.put_many("news", [b"once"], wait=False)
        until(lambda: subscriber.topic("news").topic.end == 2, what="the put is stored")
        assert publisher.unsent == 1
        wire.cut()
        publisher.flush()
        assert publisher.counters["duplicates"] == 1
        assert publisher.put("news", b"next").offset == 2
        publisher.close()
    assert payloads(subscriber.get("news", limit=10)) == [b"zero", b"once", b"next"]


def test_a_publisher_that_crashed_before_the_answer_resends_and_the_put_is_stored_once(
    serving: Serving, connect: Connect, subscriber: Any, nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    with relay(serving.address) as wire:
        unanswered = Unanswered(nursery, tmp_path, wire, serving, kind)
        unanswered.publisher.kill()
        unanswered.start_again(serving, connect)
    assert payloads(subscriber.get("news", limit=10)) == [b"once", b"next"]


def test_a_server_that_crashed_before_the_answer_knows_the_put_when_it_comes_again(
    serving: Serving, connect: Connect, subscriber: Any, nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    with relay(serving.address) as wire:
        unanswered = Unanswered(nursery, tmp_path, wire, serving, kind)
        serving.kill()
        serving.start()
        wire.cut()
        assert unanswered.publisher.noted("stored") == ["stored", 0]
        unanswered.publisher.kill()
    assert payloads(subscriber.get("news", limit=10)) == [b"once"]


def test_when_both_crashed_before_the_answer_the_put_is_resent_and_stored_once(
    serving: Serving, connect: Connect, subscriber: Any, nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    with relay(serving.address) as wire:
        unanswered = Unanswered(nursery, tmp_path, wire, serving, kind)
        serving.kill()
        unanswered.publisher.kill()
        serving.start()
        unanswered.start_again(serving, connect)
    assert payloads(subscriber.get("news", limit=10)) == [b"once", b"next"]


def test_when_both_crashed_before_the_put_arrived_it_is_sent_and_stored_once(
    serving: Serving, connect: Connect, subscriber: Any, nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    serving.kill()
    state = str(tmp_path / "press")
    publisher = nursery.start(
        "put_one", "press", tmp_path, server=serving.address, id="press", state=state,
        topic="news", payload="once", asyncio=kind == "asyncio",
    )  # fmt: skip
    publisher.noted("recorded")
    publisher.kill()
    serving.start()
    again = connect(serving.address, "press", state=state)
    again.flush()
    assert again.counters["duplicates"] == 0
    assert payloads(subscriber.get("news", limit=10)) == [b"once"]


def test_a_subscriber_that_crashed_goes_on_after_what_it_got(
    serving: Serving, connect: Connect, nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    publisher = connect(serving.address, "press")
    options = {"server": serving.address, "id": "ada", "state": str(tmp_path / "ada")}
    with Client(serving.address, id="ada", state=tmp_path / "ada") as subscriber:
        subscriber.subscribe("news")
    publisher.put_many("news", [b"%d" % number for number in range(3)])
    for number in range(3):
        crashing = nursery.start(
            "get_one", f"ada-{number}", tmp_path, topic="news", asyncio=kind == "asyncio", **options
        )
        assert crashing.noted("got") == ["got", number, str(number)]
        crashing.kill()


# ------------------------------------------------------------------ the rest of the seed


def test_subscribing_creates_the_topic(server: str, connect: Connect) -> None:
    subscriber = connect(server, "ada")
    subscriber.subscribe("not there before")
    assert [topic.name for topic in subscriber.topics()] == ["not there before"]


def test_each_subscriber_has_a_position_of_its_own_on_each_topic(
    server: str, connect: Connect
) -> None:
    ada, bob = connect(server, "ada"), connect(server, "bob")
    for subscriber in (ada, bob):
        subscriber.subscribe("topic1")
        subscriber.subscribe("topic2")
    for topic in ("topic1", "topic2"):
        ada.put_many(topic, [b"%d" % number for number in range(5)])
    assert len(ada.get("topic1", limit=4)) == 4
    assert len(ada.get("topic2", limit=3)) == 3
    assert len(bob.get("topic1", limit=1)) == 1
    ada.close()  # tells what is settled
    bob.close()
    watcher = connect(server)
    positions = {(each.client, each.topic): each.cursor for each in watcher.subscriptions()}
    assert positions == {
        ("ada", "topic1"): 4,
        ("ada", "topic2"): 3,
        ("bob", "topic1"): 1,
        ("bob", "topic2"): 0,
    }


def every_request() -> list[tuple[Request, bytes | None]]:
    """One of each kind, in an order in which each is granted."""
    client, guest = ClientId("ada"), ClientId(ANYONE)
    none, producer = Epoch(0), ProducerId(PRODUCER)
    bare: list[Request] = [
        Hello(client, none, 7),
        CreateTopic("orders", Retention(forever=True)),
        ConfigureTopic("orders", Retention(keep_ms=60_000)),
        Subscribe(guest, none, "orders"),
        Get(guest, none, "orders"),
        Settle(guest, none, ()),
        ListTopics(),
        ShowTopic("orders"),
        ListSubscriptions(),
        StatusRequest(),
        Read("orders", Offset(0)),
        Listen(guest, none, ("orders",)),
        Leave(guest, none),
        WatchEnds((("orders", Offset(0)),)),
        Compare(guest, Generation(1)),
        ListClients(),
        Lease(client, Epoch(1), 60_000),
        ForgetClient(client),
        Unsubscribe(guest, none, "orders"),
    ]
    columns, body = batch.encode([batch.Item(b"staged")])
    checksum = batch.checksum(body, batch.seed(STAGE_NAME, producer, 1, 1))
    staged = StagePut(guest, none, producer, Sequence(1), 1, columns, checksum)
    last: list[Request] = [
        DropStage(guest, none, producer),
        CommitRequest(guest, none, "nightly", 1, lasting=True),
        Resume(guest, none, "orders", producer, 1),
        DeleteTopic("orders"),
    ]
    return [
        *((each, None) for each in bare),
        put_of(b"one"),
        (staged, body),
        *((each, None) for each in last),
    ]


def test_every_request_is_confirmed_by_exactly_one_answer(server: str) -> None:
    requests = every_request()
    assert {request.opcode for request, _ in requests} == set(REQUESTS)
    with peer(server) as raw:
        for request, body in requests:
            assert not isinstance(raw.ask(request, body), RefusedReply), request
            assert not isinstance(
                raw.ask(StatusRequest()), RefusedReply
            )  # whatever came before it is in
            assert raw.silent(), f"{request} was answered twice"
