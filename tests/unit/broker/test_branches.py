"""Branches of history that generations do not tell apart: grants do, epoch and nonce together."""

import pytest

from oncemq.broker.state import snapshot
from oncemq.protocol.client_replies import LostCursor
from oncemq.protocol.client_requests import Compare, StartGrant
from oncemq.protocol.generations import Generations, continued
from oncemq.protocol.names import ClientId, Epoch, Generation, Micros, Offset
from oncemq.protocol.replies import Compared, RefusedReply, Welcome
from oncemq.protocol.requests import Hello
from tests.harness.broker import Desk
from tests.unit.broker.test_comparison import gone_back

BILLING = ClientId("billing")
RESTORED = continued(1, 9)


def asked(
    desk: Desk,
    last_epoch: int,
    *grants: StartGrant,
    claims: tuple[int, ...] = (),
    generation: int = 1,
) -> Compared:
    """A state that stands at orders@4."""
    subscriptions = desk.shard.by_name["orders"].subscriptions
    cursors = (desk.settled("orders", subscriptions[BILLING].id, 4),)
    whose = BILLING, Generation(generation), Epoch(last_epoch)
    answer = desk.ask(Compare(*whose, cursors, grants=grants, claims=claims))
    assert isinstance(answer, Compared)
    return answer


def said(desk: Desk, last_epoch: int, nonce: int, last_nonce: int, generation: int = 1) -> object:
    log = b"", Generation(generation)
    hello = Hello(BILLING, Epoch(last_epoch), nonce, *log, compares=True, last_nonce=last_nonce)
    return desk.ask(hello)


@pytest.fixture
def orders(desk: Desk) -> Desk:
    """A server that let the client in with nonce 71; it holds five messages."""
    desk.hello("billing", nonce=71)
    desk.subscription("orders")
    desk.put("orders", *[b"old"] * 5)
    return desk


TOLD = LostCursor("orders", Offset(4), Offset(-1), Offset(0), Offset(5))


def test_a_state_that_was_let_in_here_and_then_elsewhere_is_of_another_branch(orders: Desk) -> None:
    """It comes again with an epoch below the one that this branch granted it."""
    here = gone_back(orders, len(orders.records), generation=RESTORED)
    here.hello("billing", last=1, nonce=72)
    grants = StartGrant(71), StartGrant(72), StartGrant(81, Epoch(2), Micros(7))
    answer = asked(here, 2, *grants)
    assert (answer.parted, answer.stale, answer.cursors) == (True, False, (TOLD,))
    refused = said(here, 2, 82, 81)
    assert isinstance(refused, RefusedReply)
    assert refused.code == "stale_state"  # it asks before it believes that


@pytest.mark.parametrize("generation", [1, RESTORED])
def test_an_old_copy_of_a_state_is_one_on_every_branch(orders: Desk, generation: int) -> None:
    here = gone_back(orders, len(orders.records), generation=RESTORED)
    for last, nonce in ((1, 72), (here.epochs.get("billing", 0), 73)):
        last = here.epochs.get("billing", last)
        here.hello("billing", last=last, nonce=nonce)
    middle = here.epochs["billing"] - 1  # that nonce 72 was granted
    copies = {
        1: (1, StartGrant(71, Epoch(1))),
        RESTORED: (middle, StartGrant(71), StartGrant(72, Epoch(middle))),
    }
    last_epoch, *grants = copies[generation]
    answer = asked(here, last_epoch, *grants, generation=generation)
    assert (answer.parted, answer.stale) == (False, True)
    heard = asked(here, last_epoch, *grants, claims=(73,), generation=generation)
    assert (heard.parted, heard.stale) == (False, False)  # the newest start is its own
    before = asked(here, last_epoch, generation=generation)
    assert (before.parted, before.stale) == (False, False)  # a version that noted no starts


def test_a_state_that_accepted_a_loss_and_was_not_let_in_since_has_nothing_to_accept(
    orders: Desk,
) -> None:
    answer = asked(orders, 0, StartGrant(71), StartGrant(81))
    assert (answer.parted, answer.stale, answer.cursors) == (False, False, ())


def test_an_epoch_that_two_branches_granted_is_told_by_its_nonce(orders: Desk) -> None:
    refused = said(orders, 1, 82, last_nonce=81)
    assert isinstance(refused, RefusedReply)
    assert refused.code == "history_lost"
    assert "granted epoch 1 by another copy" in refused.detail
    answer = asked(orders, 1, StartGrant(71), StartGrant(81, Epoch(1)))
    assert (answer.parted, answer.cursors) == (True, (TOLD,))
    answer = asked(orders, 1, StartGrant(81), StartGrant(71, Epoch(1)))
    assert (answer.parted, answer.cursors) == (False, ())
    assert isinstance(said(orders, 1, 82, last_nonce=71), Welcome)
    assert isinstance(said(orders, 2, 83, last_nonce=0), Welcome)  # a version that noted none


def test_a_start_that_is_heard_of_late_is_the_same_start(orders: Desk) -> None:
    """Its answer was lost: it repeats its hello, with the epoch that it knew before."""
    first = said(orders, 1, 82, last_nonce=71)
    assert said(orders, 1, 82, last_nonce=71) == first


def put_back_by_hand(before: Desk, upto: int, *, stored: bool) -> Desk:
    """An older copy goes on, in the same generation; later it is backed up and restored."""
    copy = gone_back(before, upto, generation=1)
    copy.now = before.now + 1_000
    if stored:
        copy.hello("another")
        copy.put("orders", *[b"anew"] * 3, producer=b"q", client="another")
        copy.sync()
    return gone_back(copy, len(copy.records), generation=RESTORED)


@pytest.mark.parametrize("stored", [True, False])
def test_a_copy_put_back_by_hand_and_then_restored_is_another_branch_to_who_was_let_in_before(
    orders: Desk, stored: bool
) -> None:
    upto = len(orders.records)
    welcome = said(orders, 1, 72, last_nonce=71)
    assert isinstance(welcome, Welcome)
    grants = StartGrant(71, Epoch(1), Micros(1)), StartGrant(72, Epoch(2), welcome.moment)
    plain = gone_back(orders, upto, generation=RESTORED)
    answer = asked(plain, 2, *grants)
    assert (answer.parted, answer.cursors) == (False, ())  # a restore says up to where
    after = put_back_by_hand(orders, upto, stored=stored)
    answer = asked(after, 2, *grants)
    told = LostCursor("orders", Offset(4), Offset(-1), Offset(0), Offset(8))
    assert (answer.parted, answer.cursors) == ((True, (told,)) if stored else (False, ()))
    answer = asked(after, 2, StartGrant(72, Epoch(2)))
    assert not answer.parted  # a server of before said no moment
    again = Desk()
    for blob in snapshot.capture(after.shard):
        snapshot.restore(again.shard, blob)
    assert asked(again, 2, *grants).parted is stored


def test_of_each_generation_the_moment_is_known_that_the_log_had_when_it_began() -> None:
    generations, before, newest = Generations(), Generation(1), Generation(1)
    for number in range(1, 100):
        before, newest = newest, continued(newest, number)
        generations.began(newest, Micros(number * 10))
    assert generations.ended_after(before) == 990
    assert generations.ended_after(Generation(1)) == 370  # the oldest that is kept but the first
    assert generations.ended_after(newest) == 0
    again = Generations()
    again.restore(generations.capture(), newest, generations.capture_ended())
    assert again.ended_after(Generation(1)) == 370
    older = Generations()  # from a checkpoint of before moments were kept
    older.restore(generations.capture(), newest)
    assert older.ended_after(Generation(1)) == 0
