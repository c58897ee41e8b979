"""The client follows the leader: a refusal with not_leader is nothing that a user sees."""

import pytest

from oncemq.client.engine.listening import Listening
from oncemq.client.ticket import Ticket
from oncemq.client.verbs import messages as verbs
from oncemq.client.verbs.columns import leasing
from oncemq.errors import ConfigError
from oncemq.protocol.names import LeaderEpoch
from oncemq.protocol.replies import StatusReport, not_leader
from oncemq.protocol.requests import StatusRequest
from oncemq.wire import codec
from tests.harness.cluster import Cluster, ClusterWire
from tests.unit.client.test_listening import Ear
from tests.unit.client.test_transactions import carry_out


@pytest.fixture
def cluster(world) -> Cluster:
    return Cluster(world, "one", "two", "three")


def run(node, turns: int = 60, micros: int = 20_000) -> None:
    """Let time pass."""
    for _ in range(turns):
        node.turn(1)
        node.server.now += micros


def test_a_put_goes_to_the_leader_that_a_refusal_names(world, cluster) -> None:
    cluster.leader = "four"  # none of those that the client was given
    cluster.says = {"one": not_leader("four", 3)}
    node = world.client()
    assert node.run(verbs.subscribe(node.engine, "orders", "new")) is True
    ticket = node.put("orders", b"a")
    node.turn(10)
    assert ticket.result()[0].id == "orders@0"
    assert node.wire.asked == ["one", "four"]
    assert node.engine.address == "four"


def test_a_change_of_a_subscription_is_sent_again_with_the_epoch_of_the_leader(
    world, cluster
) -> None:
    """A copy that went to an earlier leader is nothing to the next one."""
    node = world.client("billing")
    for leader_epoch in (4, 7):
        world.server.driver.broker.recovered(world.server.now, LeaderEpoch(leader_epoch))
        assert node.run(verbs.subscribe(node.engine, "orders", "new")) is True
        node.run(leasing(node.engine, 86_400, ""))
        assert node.run(verbs.unsubscribe(node.engine, "orders")) is True
        assert node.engine.context.leader_epoch == leader_epoch


def test_a_leader_that_steps_down_with_puts_under_way_loses_and_doubles_none(
    world, cluster
) -> None:
    node = world.client()
    node.run(verbs.subscribe(node.engine, "orders", "new"))
    tickets = [node.put("orders", b"%d" % number) for number in range(3)]
    node.pump()  # they are at the leader
    world.server.commit()
    cluster.leader = "two"
    cluster.says = {"one": not_leader("two", 9)}
    more = [node.put("orders", b"%d" % number) for number in range(3, 6)]
    run(node, 120)
    assert all(ticket.done for ticket in tickets + more)
    assert [ticket.result()[0].offset for ticket in tickets + more] == list(range(6))
    assert world.server.stored("orders") == [b"%d" % number for number in range(6)]


def test_a_refused_request_keeps_its_token(world, cluster) -> None:
    cluster.leader = "three"
    cluster.says = {"one": not_leader("two", 5), "two": not_leader("three", 6)}
    node = world.client()
    assert node.run(verbs.subscribe(node.engine, "orders", "new")) is True
    tokens = [codec.decode_request([head])[0] for head in node.wire.refused]
    assert (node.wire.asked, len(tokens), len({*tokens})) == (["one", "two", "three"], 2, 1)


def test_a_get_that_waits_goes_on_at_the_new_leader(world, cluster) -> None:
    node = world.client()
    node.run(verbs.subscribe(node.engine, "orders", "new"))
    taking = verbs.take(node.engine, "orders", 10, 20_000)
    next(taking)
    run(node, 3)
    cluster.leader = "three"
    cluster.says = {"one": not_leader("two", 5), "two": not_leader("three", 6)}
    node.wire.cut()
    node.wire.mend()  # the old leader hangs up, and comes back as a follower
    run(node, 10)
    assert node.engine.address == "three"
    shop = world.client()
    shop.put("orders", b"a")
    for _ in range(10):
        shop.turn(1)
        node.turn(1)
        world.server.now += 20_000
    with pytest.raises(StopIteration) as end:
        taking.send(None)
    assert [message.id for message in end.value.value] == ["orders@0"]


def test_without_a_leader_the_wait_ends_with_who_was_asked(world, cluster) -> None:
    cluster.leader = "nobody"
    cluster.dead = {"three"}
    node = world.client()
    node.put("orders", b"a")
    run(node, 100)
    words = str(node.engine.gave_up(2.0, "the receipt"))
    assert words.startswith("no leader found within 2 s while waiting for the receipt: ")
    assert "one follows, and knows no leader" in words
    assert "two follows, and knows no leader" in words
    assert "three gave no connection" in words
    assert "no leader found" not in str(world.client().engine.gave_up(2.0, "the receipt"))


def test_who_finds_the_leader_forgets_that_it_was_not_found(world, cluster) -> None:
    cluster.leader = "three"
    node = world.client()
    ticket = node.put("orders", b"a")
    run(node)
    assert ticket.done
    assert "no leader" not in str(node.engine.gave_up(2.0, "x"))


@pytest.mark.parametrize(
    ("one", "two"),
    [((), ()), (("two", 4), ("one", 4)), (("two", 4), ("one", 5)), (("one", 4), ("two", 5))],
)
def test_servers_that_lead_nowhere_are_asked_with_growing_pauses(world, cluster, one, two) -> None:
    cluster.leader = "nobody"
    cluster.says = {"one": not_leader(*one), "two": not_leader(*two)}
    world.servers = ("one", "two")
    node = world.client()
    node.put("orders", b"a")
    begun = world.server.now
    while world.server.now < begun + 10_000_000:
        node.turn(1)
        due = node.engine.next_deadline()
        assert due is not None
        world.server.now = max(world.server.now, min(due, world.server.now + 200_000))
    assert 10 <= len(node.wire.asked) <= 60
    cluster.leader = "two"
    run(node, 40)
    assert node.engine.outflow.idle


def test_nothing_is_sent_between_a_refusal_and_the_next_server(world, cluster) -> None:
    cluster.leader = "nobody"
    node = world.client()
    node.put("orders", b"a")
    node.turn(3)
    sent = node.wire.sent
    node.put("orders", b"b")
    node.turn(3)
    assert (node.wire.sent, len(node.wire.refused)) == (sent, sent)


def test_a_refusal_of_an_earlier_copy_moves_nobody(world, cluster) -> None:
    """It names an older leader, and comes when the client is at the new one already."""
    node = world.client()
    node.run(verbs.subscribe(node.engine, "orders", "new"))
    taking = verbs.take(node.engine, "orders", 10, 20_000)
    next(taking)
    node.engine.exchanges.carry_out(node.engine.outgoing.take())  # not sent on this connection
    token = next(iter(node.engine.exchanges))
    node.wire.inbox.append(
        [bytes(frame) for frame in codec.encode_reply(token, not_leader("two", 1))]
    )
    node.engine.pump()
    assert node.engine.address == "one"
    taking.close()


def test_a_follower_tells_of_itself(world, cluster) -> None:
    cluster.leader = "two"
    cluster.says = {"one": not_leader("two", 2)}
    node = world.client()
    ticket: Ticket[StatusReport] = Ticket()
    node.engine.ask(lambda _: StatusRequest(), ticket=ticket)
    node.turn(4)
    assert ticket.result() == StatusReport({"leads": False})
    assert node.engine.address == "one"


def test_a_leader_named_by_what_is_no_address_is_passed_over(world, cluster, monkeypatch) -> None:
    connect = ClusterWire.connect

    def checked(self: ClusterWire, address: str) -> None:
        if address == "???":
            raise ConfigError("no address")
        connect(self, address)

    monkeypatch.setattr(ClusterWire, "connect", checked)
    cluster.leader = "two"
    cluster.says = {"one": not_leader("???", 7)}
    node = world.client()
    ticket = node.put("orders", b"a")
    run(node)
    assert ticket.done
    assert node.engine.address == "two"


def test_a_server_that_lets_in_and_never_answers_is_left_for_the_next(world, cluster) -> None:
    cluster.leader = "three"
    cluster.dead, cluster.mute = {"one"}, {"two"}
    node = world.client()
    ticket = node.put("orders", b"a")
    begun = world.server.now
    while not ticket.done:
        node.turn(1)
        world.server.now += 10_000
    assert world.server.now - begun < 1_000_000


def test_a_listener_hears_the_feed_of_the_new_leader(world, cluster) -> None:
    world.servers = ("tcp://one:1", "tcp://two:1")
    cluster.leader = "tcp://one:1"
    world.server.driver.broker.listeners.feed = "tcp://0.0.0.0:2"
    node = world.client()
    ear = node.engine.listening._ear = Ear(world.server)
    node.run(verbs.subscribe(node.engine, "orders", "new"))
    listening: Listening = node.engine.listening
    assert node.run(listening.take(("orders",), 1, 200), 40) == []
    assert (ear.address, listening.is_live) == ("tcp://one:2", True)
    cluster.leader = "tcp://two:1"
    cluster.says = {"tcp://one:1": not_leader("tcp://two:1", 2)}
    shop = world.client()
    shop.put("orders", b"a")
    run(shop, 20)
    node.engine.listening._join()  # what a listener says next is refused
    assert [each.id for each in node.run(listening.take(("orders",), 1, 5_000), 200)] == [
        "orders@0"
    ]
    run(node, 10)
    assert (ear.address, listening.is_live) == ("tcp://two:2", True)


def test_a_client_with_state_goes_on_with_its_epoch_and_its_numbers(world, cluster) -> None:
    shop = world.client("shop")
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    epoch = shop.engine.client_epoch
    leaders = ["two", "three", "one", "two"]
    for number, leader in enumerate(leaders):
        others = {"one", "two", "three"} - {leader}
        cluster.leader = leader
        cluster.says = {other: not_leader(leader, number + 1) for other in others}
        ticket = shop.put("orders", b"%d" % number)
        run(shop, 10, 5_000)
        assert ticket.done
    assert world.server.stored("orders") == [b"0", b"1", b"2", b"3"]
    assert shop.engine.client_epoch == epoch
    assert shop.get("orders") == [f"orders@{n}={n}" for n in range(4)]


def test_what_was_settled_is_told_to_the_new_leader(world, cluster) -> None:
    shop = world.client("shop")
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    shop.put("orders", b"a", b"b")
    shop.turn()
    assert shop.get("orders") == ["orders@0=a", "orders@1=b"]
    cluster.leader, cluster.says = "two", {"one": not_leader("two", 2)}
    assert shop.get("orders") == []
    run(shop)
    subscription = world.server.driver.broker.shard.by_name["orders"].subscriptions["shop"]
    assert subscription.cursor == 2


@pytest.mark.parametrize("moment", range(8))
def test_a_transaction_takes_effect_once_whenever_the_leader_changes(
    world, cluster, moment
) -> None:
    job = world.client("job")
    for topic in ("in", "out"):
        job.run(verbs.subscribe(job.engine, topic, "new"))
    job.put("in", b"a", b"b")
    job.turn()
    turns = iter(range(100))
    collect = job.wire.collect

    def step_down() -> None:
        if next(turns, 0) == moment:
            cluster.leader, cluster.says = "two", {"one": not_leader("two", 2)}
        collect()

    job.wire.collect = step_down
    assert carry_out(job) == [b"a", b"b"]
    assert world.server.stored("out") == [b"A", b"B"]
    run(job)
    assert carry_out(job) == []
    assert job.engine.address == "two"
