"""What goes out on the live feed: durable, in order, the bytes of a get, and only if wanted."""

from collections.abc import Sequence

import pytest

from oncemq.protocol.names import Micros, TopicId
from oncemq.protocol.replies import Messages
from oncemq.protocol.requests import DeleteTopic
from oncemq.server import feed as module
from oncemq.wire import codec
from tests.harness.server import messages


class Audience:
    """Someone listens to a topic of this host."""

    def __init__(self, host, topic: str = "orders") -> None:
        self.host = host
        host.subscribe(topic)
        self.topic_id = host.broker.shard.by_name[topic].id
        self.changed(joined=True)

    def changed(self, *, joined: bool) -> None:
        self.host.driver.pushes.changed(joined=joined, subject=codec.subject(self.topic_id))

    def heard(self) -> list[str]:
        """What the feed said since the last time: batches as messages, `<end` an announcement."""
        pushes = self.host.driver.pushes
        outgoing, pushes.outgoing = pushes.outgoing, []
        found: list[str] = []
        for frames in outgoing:
            pushed, bodies = codec.decode_push(frames)
            assert pushed.topic_id == self.topic_id
            found += said(pushed.batches, bodies) or [f"<{pushed.end}"]
        return found


def said(batches: tuple, bodies: Sequence) -> list[str]:
    return messages(Messages(batches, more=False), bodies)


@pytest.fixture
def audience(host) -> Audience:
    audience = Audience(host)
    host.driver.tick(Micros(host.now))
    assert audience.heard() == ["<0"]
    return audience


def test_a_batch_is_pushed_once_when_it_is_durable(host, audience: Audience) -> None:
    host.send(*host.putting("orders", b"one", b"two"))
    assert audience.heard() == []
    host.commit()
    assert audience.heard() == ["orders@0=one", "orders@1=two"]
    assert audience.heard() == []


def test_it_is_what_a_get_gives(host, audience: Audience) -> None:
    host.put("orders", b"one", b"two")
    (frames,) = host.driver.pushes.outgoing
    pushed, bodies = codec.decode_push(frames)
    reply, same = host.ask_all(host.getting("orders"))
    (head,) = pushed.batches
    (got,) = reply.batches
    assert [bytes(body) for body in bodies] == [bytes(body) for body in same]
    assert (head.topic, head.first_offset, head.count, head.checksum, head.runs) == (
        got.topic, got.first_offset, got.count, got.checksum, got.runs,
    )  # fmt: skip


def test_what_one_sync_shows_of_a_topic_is_one_message(host, audience: Audience) -> None:
    for number in range(1, 4):
        host.send(*host.putting("orders", b"%d" % number, first=number))
    host.commit()
    assert len(host.driver.pushes.outgoing) == 1
    assert audience.heard() == ["orders@0=1", "orders@1=2", "orders@2=3"]


def test_what_comes_while_a_sync_is_under_way_is_pushed_after_its_own(
    host, audience: Audience
) -> None:
    host.send(*host.putting("orders", b"one", first=1))
    group = host.driver.commit(Micros(host.now))
    assert group is not None
    host.send(*host.putting("orders", b"two", first=2))
    host.log.write(group)
    host.driver.written(group, Micros(host.now))
    assert audience.heard() == ["orders@0=one"]
    host.commit()
    assert audience.heard() == ["orders@1=two"]


def test_nothing_is_pushed_that_nobody_listens_to(host, audience: Audience) -> None:
    host.subscribe("refunds")
    host.put("refunds", b"one")
    audience.changed(joined=False)
    host.put("orders", b"one")
    assert host.driver.pushes.outgoing == []
    assert host.driver.pushes.kept == {}


def test_a_batch_that_was_under_way_when_the_listener_came_is_announced(
    host, audience: Audience
) -> None:
    audience.changed(joined=False)
    host.send(*host.putting("orders", b"one"))
    audience.changed(joined=True)
    host.commit()
    assert audience.heard() == ["<1"]


def test_a_batch_nobody_waits_for_any_more_is_let_go(host, audience: Audience) -> None:
    host.send(*host.putting("orders", b"one"))
    audience.changed(joined=False)
    host.commit()
    assert audience.heard() == []
    assert host.driver.pushes.kept == {}


def test_a_large_batch_is_announced_and_so_is_what_comes_behind_it(
    host, audience: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PUSH_BYTES_MAX", 1_000)
    host.send(*host.putting("orders", b"small", first=1))
    host.send(*host.putting("orders", b"x" * 1_000, first=2))
    host.send(*host.putting("orders", b"small again", first=3))
    host.commit()
    assert audience.heard() == ["orders@0=small", "<3"]


def test_many_batches_go_out_in_messages_of_bounded_size(
    host, audience: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PUSH_BYTES_MAX", 1_000)
    for number in range(1, 8):
        host.send(*host.putting("orders", b"x" * 200, first=number))
    host.commit()
    assert [len(frames) - 2 for frames in host.driver.pushes.outgoing] == [2, 2, 2, 1]
    assert len(audience.heard()) == 7


def test_newcomers_are_told_together_where_their_topic_ends(host, audience: Audience) -> None:
    host.put("orders", b"one")
    audience.heard()
    audience.changed(joined=True)
    audience.changed(joined=True)
    host.driver.tick(Micros(host.now + 1))
    assert audience.heard() == []  # others were told a moment ago
    assert host.driver.next_deadline() is not None
    host.driver.tick(host.driver.next_deadline())
    assert audience.heard() == ["<1"]


def test_subjects_that_are_none_mean_nothing(host) -> None:
    for subject in (b"", b"orders", codec.subject(TopicId(99)) + b"!"):
        host.driver.pushes.changed(joined=True, subject=subject)
    host.driver.pushes.changed(joined=True, subject=codec.subject(TopicId(99)))
    host.driver.tick(Micros(host.now))
    assert host.driver.pushes.outgoing == []


def test_a_topic_deleted_before_its_messages_were_durable_is_not_pushed(
    host, audience: Audience
) -> None:
    host.send(*host.putting("orders", b"one"))
    host.ask(DeleteTopic("orders"))
    assert audience.heard() == []
