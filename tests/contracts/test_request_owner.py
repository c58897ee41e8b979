"""What every part of a client does that asks the server something, driven without an engine."""

from collections.abc import Callable
from typing import Any

import pytest

from oncemq.client.context import ClientContext
from oncemq.client.engine.fetches import Fetches
from oncemq.client.engine.handshake import HandshakeEngine
from oncemq.client.engine.listening import Listening
from oncemq.client.engine.questions import Question, Questions
from oncemq.client.engine.settling import Settling
from oncemq.client.engine.stage_puts import StageLine
from oncemq.client.engine.transactions import Transactions
from oncemq.client.puts.deleted_topics import Forgetting
from oncemq.client.puts.producers import Producers
from oncemq.client.puts.put_buffer import PutBuffer
from oncemq.client.settings import Settings
from oncemq.client.state.memory_journal import MemoryJournal
from oncemq.client.state.state import State
from oncemq.client.told_losses import Losses
from oncemq.client.values import Message
from oncemq.errors import Fenced
from oncemq.protocol.names import Micros, Offset, ProducerId, SubscriptionId, TopicId
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.requests import Request, StatusRequest
from oncemq.session.listener_order import ListenerOrder
from oncemq.session.outgoing import Outgoing, RequestOwner, Wanted
from oncemq.session.publisher import Publisher
from oncemq.session.subscriber import Subscriber
from oncemq.wire import batch

NOW = Micros(1_000_000)
BODY = batch.encode_payloads([b"one"])


class Setting:
    """What a part is made of: a client, what it is subscribed to, and where it leaves requests."""

    def __init__(self) -> None:
        journal, settings = MemoryJournal(), Settings(["one"], 5.0, 1 << 20, lambda: 0.5)
        state = State(
            "billing",
            journal=journal,
            slots=[],
            directory="",
            random_bytes=bytes,
            close=lambda: None,
        )
        self.client, self.out = ClientContext(settings, state, lambda: NOW), Outgoing()
        cursors = {"orders": (SubscriptionId(1), Offset(3))}
        self.subscriber: Subscriber[Message] = Subscriber(cursors)
        self.answers: list[Any] = []

    def taken(self) -> list[Wanted]:
        return self.out.take()


def put_buffer(at: Setting) -> None:
    puts = PutBuffer(at.client, at.out)
    puts.put("orders", count=1, columns=0, body=BODY, lasting=False)
    puts.start(NOW)


def forgetting(at: Setting) -> None:
    at.client.settings.lanes_kept = 0
    publisher = Publisher()
    publisher.numbers("orders", ProducerId(b"p" * 16)).topic_id = TopicId(1)
    Forgetting(at.client, at.out, publisher, Producers(at.client.state, publisher)).begin()


def fetches(at: Setting) -> Fetches:
    made = Fetches(at.client, at.out, at.subscriber, Losses())
    made.begin("orders", 1, 0)
    return made


def listening(at: Setting) -> None:
    its_fetches = Fetches(at.client, at.out, at.subscriber, Losses())
    transactions = Transactions(at.client, at.out)
    part = Listening(at.client, at.out, at.subscriber, its_fetches, transactions, None)
    next(part.take(("orders",), 1, 1_000))


def settling(at: Setting) -> None:
    live: ListenerOrder[Message] = ListenerOrder(at.subscriber)
    Settling(at.client, at.out, at.subscriber, live).tell()


def handshake(at: Setting) -> None:
    transactions = Transactions(at.client, at.out)
    HandshakeEngine(at.client, at.out, at.subscriber, transactions).begin()


def stage_line(at: Setting) -> None:
    StageLine(at.client, at.out, ProducerId(b"s" * 16)).put(1, 0, BODY)


def questions(at: Setting) -> None:
    made = Question(lambda: (StatusRequest(), None), lambda reply, _: at.answers.append(reply))
    at.out.begin(Questions(), made)


PARTS: dict[Callable[[Setting], object], type] = {
    put_buffer: PutBuffer,
    forgetting: Forgetting,
    fetches: Fetches,
    listening: Listening,
    settling: Settling,
    handshake: HandshakeEngine,
    stage_line: StageLine,
    questions: Questions,
}


@pytest.fixture(params=list(PARTS))
def drive(request: pytest.FixtureRequest) -> Callable[[Setting], object]:
    return request.param


def asked(at: Setting, drive: Callable[[Setting], object]) -> tuple[RequestOwner, Any]:
    drive(at)
    owner, key, _ = at.taken()[0]
    assert owner is not None
    assert isinstance(owner, PARTS[drive])
    return owner, key


def test_what_it_leaves_is_made_by_it_and_by_its_key(drive: Callable[[Setting], object]) -> None:
    owner, key = asked(Setting(), drive)
    request, _ = owner.request(key)
    assert isinstance(request, Request)


def test_a_request_that_is_sent_again_says_the_same(drive: Callable[[Setting], object]) -> None:
    at = Setting()
    owner, key = asked(at, drive)
    assert owner.request(key) == owner.request(key)
    assert at.taken() == []  # to make it begins nothing


def test_a_refusal_because_the_client_ended_begins_nothing_anew(
    drive: Callable[[Setting], object],
) -> None:
    at = Setting()
    owner, key = asked(at, drive)
    at.client.fail(Fenced("a newer one is there"))
    owner.on_reply(key, RefusedReply("fenced", "a newer one is there"), ())
    assert [each for each in at.taken() if each[0] is not None] == []


def test_what_was_given_up_before_it_was_taken_out_is_said_in_its_order() -> None:
    at = Setting()
    given_up = fetches(at)
    given_up.end_all()
    (owner, key, _), (nobody, same, _) = at.taken()
    assert (owner, nobody, same is key) == (given_up, None, True)
