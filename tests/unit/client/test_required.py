"""A put that is required: stored or refused, also over lines that lose answers and restarts."""

import logging

import pytest

from oncemq.broker.recorder import Recorder
from oncemq.client.puts.discards import TOPICS_MAX, Discards
from oncemq.client.values import Receipt
from oncemq.client.verbs import messages, staged_commits
from oncemq.client.verbs.keyed_puts import put_keyed
from oncemq.client.verbs.transaction_work import TransactionWork
from oncemq.errors import Unwanted
from oncemq.wire import batch


@pytest.fixture
def shop(world):
    shop = world.client("shop")
    shop.turn()
    return shop


def test_a_required_put_that_nobody_would_get_raises_and_makes_no_topic(world, shop) -> None:
    ticket = shop.put("orders", b"a", required=True)
    shop.turn(12)
    with pytest.raises(Unwanted, match="Subscribe first"):
        ticket.result()
    assert "orders" not in world.server.driver.broker.shard.by_name
    assert shop.engine.outflow.idle


def test_puts_behind_a_refused_one_are_stored_in_their_order(world, shop) -> None:
    refused = shop.put("orders", b"a", required=True)
    plain = shop.put("orders", b"b")
    shop.turn(12)
    assert isinstance(refused.error, Unwanted)
    assert plain.result()[0].stored is False
    world.client("billing").run(messages.subscribe(world.nodes[-1].engine, "orders", "new"))
    tickets = [shop.put("orders", b"%d" % n, required=n % 2 == 0) for n in range(4)]
    shop.turn(12)
    assert [ticket.result()[0].offset for ticket in tickets] == [0, 1, 2, 3]
    assert world.server.stored("orders") == [b"0", b"1", b"2", b"3"]


def test_a_copy_of_a_refused_put_that_is_stored_after_all_is_no_refusal(world, shop) -> None:
    """The first copy is refused, somebody subscribes, the second copy is stored."""
    billing = world.client("billing")
    ticket = shop.put("orders", b"a", required=True)
    shop.engine.pump()
    world.server.commit()
    shop.wire.collect()
    assert [frames for frames in shop.wire.inbox if b"unwanted" in b"".join(frames)]
    held, shop.wire.inbox = shop.wire.inbox, []
    billing.run(messages.subscribe(billing.engine, "orders", "new"))
    world.server.now += 3_000_000
    shop.engine.pump()  # no answer came: the same again
    world.server.commit()
    assert world.server.stored("orders") == [b"a"]
    shop.wire.collect()
    shop.wire.inbox = held  # now the refusal of the first copy
    shop.turn(12)
    assert ticket.result()[0].offset == 0
    assert world.server.stored("orders") == [b"a"]


@pytest.mark.parametrize("first", [True, False])
def test_gathered_puts_are_required_or_not_each_as_it_was_said(world, shop, first: bool) -> None:
    tickets = [shop.gather("orders", b"x", required=(n % 2 == 0) == first) for n in range(4)]
    shop.turn(20)
    outcomes = [isinstance(ticket.error, Unwanted) for ticket in tickets]
    assert outcomes == [first, not first, first, not first]
    assert [t.result()[0].stored for t in tickets if t.error is None] == [False, False]


def test_a_recorded_put_is_required_after_a_restart_too(world, shop, caplog) -> None:
    shop.wire.cut()
    shop.put("orders", b"a", required=True)
    after = world.crashed("shop")
    with caplog.at_level(logging.ERROR, "oncemq.client"):
        after.turn(12)
    assert "put refused topic=orders code=unwanted" in caplog.text
    assert "Subscribe first" in caplog.text
    assert isinstance(after.engine.outflow.take_failure(), Unwanted)
    assert "orders" not in world.server.driver.broker.shard.by_name


def test_a_recorded_put_is_required_after_its_outbox_was_written_anew(world, shop) -> None:
    shop.wire.cut()
    shop.put("orders", b"a", required=True)
    slot = shop.state.slots[0]
    slot.rotate(*shop.engine.outflow.producers.kept_in(slot))
    after = world.crashed("shop")
    after.turn(12)
    assert isinstance(after.engine.outflow.take_failure(), Unwanted)


def test_what_is_discarded_is_told_once_for_each_topic(world, shop, caplog) -> None:
    with caplog.at_level(logging.WARNING, "oncemq.lost"):
        for topic in ("orders", "orders", "refunds"):
            shop.put(topic, b"secret")
            shop.turn()
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in told] == [
        "put discarded topic=orders",
        "put discarded topic=refunds",
    ]
    assert "secret" not in caplog.text


def test_the_topics_that_were_told_of_are_bounded() -> None:
    discards = Discards()
    for number in range(2 * TOPICS_MAX + 1):
        discards.note(Receipt(f"t{number}", None, stored=False, duplicate=False))
    assert len(discards._told) == 1  # pyright: ignore[reportPrivateUsage]


# ------------------------------------------------------------------ a server that does not know it


@pytest.fixture
def old_server(world, monkeypatch):
    """A server from before `required`: it takes and discards what nobody would get."""
    monkeypatch.setattr(Recorder, "unwanted", lambda *_: None)
    return world.server


def test_a_required_put_that_an_old_server_discarded_is_unwanted(old_server, shop) -> None:
    ticket = shop.put("orders", b"a", required=True)
    plain = shop.put("orders", b"b")
    shop.turn(12)
    with pytest.raises(Unwanted, match=r"nobody subscribes to 'orders'.*older one") as refused:
        ticket.result()
    assert refused.value.code == "discarded"
    assert plain.result()[0].stored is False
    assert shop.engine.outflow.idle


def test_a_required_put_of_an_earlier_start_that_an_old_server_discarded_is_told_by_flush(
    world, old_server, shop
) -> None:
    shop.wire.cut()
    shop.put("orders", b"a", required=True)
    shop.close()
    again = world.client("shop")
    again.turn(12)
    assert isinstance(again.engine.outflow.take_failure(), Unwanted)


def test_a_keyed_put_that_an_old_server_discarded_is_unwanted(old_server, shop) -> None:
    body = batch.encode_payloads([b"a"])
    keyed = put_keyed(shop.engine, "orders", "k", count=1, columns=0, body=body, required=True)
    with pytest.raises(Unwanted, match="older one"):
        shop.run(keyed)


def test_a_transaction_whose_output_an_old_server_discarded_is_unwanted(old_server, shop) -> None:
    work = TransactionWork(shop.engine, required=True)
    shop.run(work.put(["orders"], [batch.Item(b"a")]))
    with pytest.raises(Unwanted, match=r"'orders'.*everything that was settled"):
        shop.run(work.commit())
    work.abort()
    optional = TransactionWork(shop.engine, required=False)
    shop.run(optional.put(["orders"], [batch.Item(b"a")]))
    assert shop.run(optional.commit()).receipts["orders"][0].stored is False


def test_a_commit_of_stages_that_an_old_server_discarded_is_unwanted(old_server, shop) -> None:
    line = staged_commits.new_line(shop.engine, None)
    shop.run(
        staged_commits.stage_put(
            shop.engine, line, count=1, columns=0, body=batch.encode_payloads([b"a"])
        )
    )
    token = shop.run(staged_commits.stage_close(line))
    with pytest.raises(Unwanted, match="'orders'"):
        shop.run(staged_commits.commit(shop.engine, "owner", 1, [("orders", token)]))
