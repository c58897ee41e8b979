"""The scenarios that seed 000 lists in its section 5, each under a name that quotes it.

GET, PUT, SUBSCRIBE, UNSUBSCRIBE are `get`, `put`, `subscribe`, `unsubscribe`; ACK and NACK are
True and False, a receipt and its `stored`, messages and none; PROXY is the server. The hole the
seed left open (RECEIVED lost: the message comes again) is closed here.
"""

from pathlib import Path

import pytest

from oncemq import Client, NotSubscribed
from tests.e2e.processes import Nursery, Serving
from tests.integration.conftest import Connect


def payloads(messages: list) -> list[bytes]:
    return [message.payload for message in messages]


# ------------------------------------------------------------------ GET


def test_get_multiple_get_calls_on_the_same_topic_to_check_if_subscriber_advances_in_the_topics_messages(  # noqa: E501
    server: str, connect: Connect
) -> None:
    subscriber, publisher = connect(server, "ada"), connect(server, "press")
    subscriber.subscribe("news")
    for payload in (b"one", b"two", b"three"):
        publisher.put("news", payload)
    got = [subscriber.get("news") for _ in range(4)]
    assert [payloads(each) for each in got] == [[b"one"], [b"two"], [b"three"], []]
    assert [message.id for each in got for message in each] == ["news@0", "news@1", "news@2"]


def test_get_test_get_call_to_a_topic_that_does_not_exist(server: str, connect: Connect) -> None:
    subscriber = connect(server, "ada")
    with pytest.raises(NotSubscribed) as refused:
        subscriber.get("nowhere")
    assert refused.value.code == "not_subscribed"
    assert "'nowhere'" in refused.value.detail
    assert subscriber.topics() == []  # asking makes no topic


def test_get_test_get_call_to_a_topic_that_is_not_subscribed(server: str, connect: Connect) -> None:
    subscriber, other = connect(server, "ada"), connect(server, "bob")
    other.subscribe("news")
    other.put("news", b"for bob")
    with pytest.raises(NotSubscribed):
        subscriber.get("news")
    with pytest.raises(NotSubscribed):
        subscriber.get()
    assert payloads(other.get("news")) == [b"for bob"]


def test_get_test_situation_where_received_message_is_not_received_by_the_proxy_because_the_subscriber_crashed(  # noqa: E501
    serving: Serving, connect: Connect, kind: str, nursery: Nursery, tmp_path: Path
) -> None:
    watcher = connect(serving.address, "watcher")
    with Client(serving.address, id="ada", state=tmp_path / "ada") as subscriber:
        subscriber.subscribe("news")
    watcher.put_many("news", [b"one", b"two"])
    crashed = nursery.start(
        "get_one", "ada", tmp_path, server=serving.address, id="ada", state=str(tmp_path / "ada"),
        topic="news", asyncio=kind == "asyncio",
    )  # fmt: skip
    assert crashed.noted("got") == ["got", 0, "one"]
    crashed.kill()
    (subscription,) = watcher.subscriptions("news")
    assert subscription.cursor == 0  # the server was never told
    again = connect(serving.address, "ada", state=tmp_path / "ada")
    assert payloads(again.get("news", limit=10)) == [b"two"]


def test_get_test_situation_where_received_message_is_not_received_by_the_proxy_because_it_crashed(
    serving: Serving, connect: Connect
) -> None:
    subscriber, publisher = connect(serving.address, "ada"), connect(serving.address, "press")
    subscriber.subscribe("news")
    publisher.put_many("news", [b"one", b"two", b"three"])
    assert payloads(subscriber.get("news")) == [b"one"]
    serving.kill()
    serving.start()
    assert payloads(subscriber.get("news")) == [b"two"]
    serving.kill()
    serving.start()
    assert payloads(subscriber.get("news", limit=10)) == [b"three"]


# ------------------------------------------------------------------ PUT


def test_put_test_put_message_on_topic_that_did_not_exists_to_check_if_topic_is_created(
    server: str, connect: Connect
) -> None:
    publisher = connect(server, "press")
    assert publisher.topics() == []
    publisher.put("news", b"one")
    assert [topic.name for topic in publisher.topics()] == ["news"]


def test_put_test_put_message_on_topic_that_already_exists_to_check_if_message_is_added_to_topic(
    server: str, connect: Connect
) -> None:
    publisher = connect(server, "press")
    publisher.subscribe("news")
    first, second = publisher.put("news", b"one"), publisher.put("news", b"two")
    assert (first.stored, first.offset, first.duplicate) == (True, 0, False)
    assert (second.stored, second.offset, second.duplicate) == (True, 1, False)
    assert publisher.topic("news").topic.end == 2
    assert payloads(publisher.get("news", limit=10)) == [b"one", b"two"]


def test_put_test_put_message_on_topic_that_has_no_subscribers_message_is_discarded(
    server: str, connect: Connect
) -> None:
    publisher = connect(server, "press")
    receipt = publisher.put("news", b"unheard")
    assert (receipt.stored, receipt.offset, receipt.id) == (False, None, None)
    assert publisher.topic("news").topic.end == 0
    publisher.subscribe("news", start="earliest")
    assert publisher.get("news") == []
    publisher.put("news", b"heard")
    assert payloads(publisher.get("news")) == [b"heard"]


# ------------------------------------------------------------------ SUBSCRIBE and UNSUBSCRIBE


def test_subscribe_simple_valid_subscribe_calls(server: str, connect: Connect) -> None:
    subscriber = connect(server, "ada")
    assert subscriber.subscribe("news") is True
    assert subscriber.subscribe("sport") is True
    listed = subscriber.subscriptions(client="ada")
    assert [(each.topic, each.client, each.cursor) for each in listed] == [
        ("news", "ada", 0),
        ("sport", "ada", 0),
    ]


def test_subscribe_test_subscribe_call_to_topic_that_is_already_subscribed_message_is_discarded_and_a_nack_message_is_sent(  # noqa: E501
    server: str, connect: Connect
) -> None:
    subscriber = connect(server, "ada")
    subscriber.subscribe("news")
    subscriber.put("news", b"one")
    before = subscriber.subscriptions()
    assert subscriber.subscribe("news") is False
    assert subscriber.subscriptions() == before
    assert payloads(subscriber.get("news", limit=10)) == [b"one"]  # it did not start afresh


def test_unsubscribe_simple_valid_unsubscribe_calls(server: str, connect: Connect) -> None:
    subscriber = connect(server, "ada")
    subscriber.subscribe("news")
    subscriber.put("news", b"never read")
    assert subscriber.unsubscribe("news") is True
    assert subscriber.subscriptions() == []
    with pytest.raises(NotSubscribed):
        subscriber.get("news")
    subscriber.subscribe("news")
    assert subscriber.get("news") == []  # G6: subscribing again starts afresh


def test_unsubscribe_test_unsubscribe_call_to_topic_that_does_not_exist_nack_message_is_sent(
    server: str, connect: Connect
) -> None:
    subscriber = connect(server, "ada")
    assert subscriber.unsubscribe("nowhere") is False
    assert subscriber.topics() == []


def test_unsubscribe_test_unsubscribe_call_to_topic_that_is_not_subscribed_nack_message_is_sent(
    server: str, connect: Connect
) -> None:
    subscriber, other = connect(server, "ada"), connect(server, "bob")
    other.subscribe("news")
    assert subscriber.unsubscribe("news") is False
    assert [each.client for each in subscriber.subscriptions("news")] == ["bob"]


# ------------------------------------------------------------------ PROXY


def test_proxy_proxy_crash_and_restart_check_if_state_was_preserved(
    serving: Serving, connect: Connect
) -> None:
    ada, bob = connect(serving.address, "ada"), connect(serving.address, "bob")
    ada.subscribe("news")
    bob.subscribe("news")
    bob.subscribe("sport")
    first = ada.put_many("news", [b"one", b"two"])
    ada.put("sport", b"goal")
    assert payloads(ada.get("news")) == [b"one"]
    ada.get("news", limit=1)
    told = ada.subscriptions()  # this get told the server of the first
    topics = ada.topics()
    serving.kill()
    serving.start()
    assert ada.topics() == topics
    assert ada.subscriptions() == told
    assert ada.subscribe("news") is False
    assert ada.get("news", limit=10) == []
    assert payloads(bob.get(limit=10)) == [b"one", b"two", b"goal"]
    third = ada.put("news", b"three")
    assert (first[1].offset, third.offset, third.duplicate) == (1, 2, False)
    assert payloads(ada.get("news")) == [b"three"]
