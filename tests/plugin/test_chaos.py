"""Each knob does what it says: shown on a client that must come through it."""

from collections.abc import Callable

import pytest

from oncemq import Client, Receipt
from oncemq.testing.chaos import Chaos

Connect = Callable[..., Client]


@pytest.fixture
def mq(oncemq_client: Connect) -> Client:
    client = oncemq_client(id="billing")
    client.subscribe("orders")
    return client


def payloads(client: Client) -> list[bytes]:
    return [each.payload for each in client.get("orders", limit=1000, wait=10)]


def test_what_was_written_and_not_synced_survives_a_killed_process(
    mq: Client, oncemq_chaos: Chaos
) -> None:
    oncemq_chaos.crash_after_append()
    receipt = mq.put("orders", b"tea")
    assert receipt == Receipt("orders", 0, stored=True, duplicate=True)
    assert oncemq_chaos.injected["crash after append"] == 1
    assert payloads(mq) == [b"tea"]


def test_what_was_written_and_not_synced_is_gone_after_a_power_cut(
    mq: Client, oncemq_chaos: Chaos
) -> None:
    oncemq_chaos.crash_before_sync()
    receipt = mq.put("orders", b"tea")
    assert receipt == Receipt("orders", 0, stored=True, duplicate=False), "it was not lost"
    assert oncemq_chaos.injected["crash before sync"] == 1
    assert payloads(mq) == [b"tea"]


def test_what_was_synced_is_a_duplicate_when_its_publisher_was_not_told(
    mq: Client, oncemq_chaos: Chaos
) -> None:
    oncemq_chaos.crash_after_sync()
    receipt = mq.put("orders", b"tea")
    assert receipt == Receipt("orders", 0, stored=True, duplicate=True)
    assert oncemq_chaos.injected["crash after sync"] == 1
    assert payloads(mq) == [b"tea"]


def test_a_request_that_comes_twice_is_carried_out_once(mq: Client, oncemq_chaos: Chaos) -> None:
    oncemq_chaos.duplicate_requests()
    sent = [b"%d" % n for n in range(20)]
    for each in sent:
        mq.put("orders", each)
    assert payloads(mq) == sent
    assert oncemq_chaos.injected["duplicate request"] >= 20


def test_slow_requests_keep_their_order(mq: Client, oncemq_chaos: Chaos) -> None:
    oncemq_chaos.delay(0.02)
    sent = [b"%d" % n for n in range(20)]
    for each in sent:
        mq.put("orders", each, wait=False)
        mq.put_many("orders", [])
    mq.flush()
    assert payloads(mq) == sent
    assert oncemq_chaos.injected["delay"] > 0


@pytest.mark.slow  # a client waits a second before it asks again
def test_a_put_whose_reply_is_lost_is_stored_once(mq: Client, oncemq_chaos: Chaos) -> None:
    oncemq_chaos.drop_replies(times=1)
    assert mq.put("orders", b"tea").duplicate
    assert oncemq_chaos.injected["drop reply"] == 1
    assert payloads(mq) == [b"tea"]


def test_a_server_that_was_killed_comes_back_on_its_address(
    mq: Client, oncemq_chaos: Chaos
) -> None:
    mq.put("orders", b"tea")
    for n in range(3):
        oncemq_chaos.crash()
        mq.put("orders", b"%d" % n)
    assert oncemq_chaos.injected["crash"] == 3
    assert payloads(mq) == [b"tea", b"0", b"1", b"2"]


def test_a_knob_strikes_as_often_as_it_may() -> None:
    chaos = Chaos(7)
    chaos.drop_replies(times=2)
    assert [chaos.strikes("drop reply") for _ in range(4)] == [True, True, False, False]
    chaos.drop_replies()
    chaos.calm()
    assert not chaos.strikes("drop reply")
    assert chaos.injected["drop reply"] == 2


def draws(chaos: Chaos) -> list[bool]:
    return [chaos.strikes("drop reply") for _ in range(100)]


def test_the_same_seed_draws_the_same_and_the_knobs_do_not_disturb_each_other() -> None:
    first, second, other = Chaos(7), Chaos(7), Chaos(8)
    for chaos in (first, second, other):
        chaos.drop_replies(0.5)
    second.duplicate_requests(0.5)
    drawn = []
    for _ in range(100):
        drawn.append(second.strikes("drop reply"))
        second.strikes("duplicate request")
    assert draws(first) == drawn
    assert draws(other) != drawn


@pytest.mark.parametrize(
    ("knob", "settings"),
    [
        ("drop_replies", {"chance": 1.5}),
        ("duplicate_requests", {"chance": -0.1}),
        ("crash_after_sync", {"times": -1}),
        ("delay", {"seconds": -1}),
    ],
)
def test_a_knob_refuses_what_makes_no_sense(knob: str, settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"not|before"):
        getattr(Chaos(), knob)(**settings)
