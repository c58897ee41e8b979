"""What becomes of requests, watches and leases when etcd does not answer, forgets or is wrong."""

import pytest

from oncemq.coordination.coordinator import (
    Changes,
    Found,
    Happened,
    KeyEntry,
    Overtaken,
    ReadEntries,
    Snapshot,
    StoreAway,
    StoreBack,
    Transact,
    Unanswered,
)
from oncemq.coordination.etcd.rules.calls import (
    Attempt,
    Attempted,
    CallDone,
    Grant,
    Granted,
    HasRead,
    KeepAlive,
    Kept,
    PutLeased,
    ReadKeys,
    ReadPrefix,
    WatchFrom,
)
from oncemq.coordination.etcd.rules.inquiry import Inquiry
from oncemq.coordination.etcd.rules.picture import Picture
from oncemq.coordination.etcd.rules.presence import Presence

SWAP = Transact({"a": 5, "b": 5}, {"a": b"mine"}, ("b",))
MINE = KeyEntry("a", b"mine", 6)
THEIRS = KeyEntry("a", b"theirs", 6)

# ------------------------------------------------------------------ requests


def test_a_read_is_answered_by_what_was_found() -> None:
    inquiry = Inquiry(ReadEntries(("a",)), deadline=0)
    assert inquiry.call == ReadKeys(("a",))
    assert inquiry.answered(HasRead({"a": MINE}, 9)) == Found({"a": MINE}, 9)


def test_a_transaction_happens_or_is_overtaken() -> None:
    inquiry = Inquiry(SWAP, deadline=0)
    assert inquiry.call == Attempt(SWAP)
    assert inquiry.answered(Attempted(True, {}, 6)) == Happened(6)
    assert inquiry.answered(Attempted(False, {"a": THEIRS}, 8)) == Overtaken({"a": THEIRS})


def test_a_transaction_whose_answer_was_lost_is_known_by_what_it_put() -> None:
    inquiry = Inquiry(SWAP, deadline=10)
    assert inquiry.failed("lost", now=9) is None
    assert inquiry.answered(Attempted(False, {"a": MINE}, 8)) == Happened(6)


@pytest.mark.parametrize(
    "there", [{"a": THEIRS}, {}, {"a": MINE, "b": KeyEntry("b", b"not deleted", 5)}]
)
def test_a_transaction_whose_answer_was_lost_and_of_which_something_is_missing_is_overtaken(
    there: dict[str, KeyEntry],
) -> None:
    inquiry = Inquiry(SWAP, deadline=10)
    inquiry.failed("lost", now=9)
    assert inquiry.answered(Attempted(False, there, 8)) == Overtaken(there)


def test_a_delete_that_was_not_in_doubt_is_not_taken_for_ones_own() -> None:
    delete = Transact({"b": 5}, {}, ("b",))
    assert Inquiry(delete, deadline=10).answered(Attempted(False, {}, 8)) == Overtaken({})
    doubtful = Inquiry(delete, deadline=10)
    doubtful.failed("lost", now=9)
    assert doubtful.answered(Attempted(False, {}, 8)) == Happened(0)


def test_what_is_not_answered_in_time_is_told_so() -> None:
    inquiry = Inquiry(SWAP, deadline=10)
    assert inquiry.failed("m1: refused", now=10) == Unanswered("m1: refused")


# ------------------------------------------------------------------ watches


def watching(revision: int = 5) -> Picture:
    """A picture with `a` in it."""
    picture = Picture("/p/")
    assert picture.next() == ReadPrefix("/p/")
    read = HasRead({"a": MINE}, revision)
    assert picture.read(read) == [Snapshot({"a": MINE}, revision)]
    assert picture.next() == WatchFrom("/p/", revision + 1)
    return picture


def test_a_watch_goes_on_after_the_last_change_that_was_told() -> None:
    picture = watching()
    assert picture.changed({"a": None}, 7) == [Changes({"a": None}, 7)]
    assert picture.next() == WatchFrom("/p/", 8)


@pytest.mark.parametrize("revision", [3, 5])
def test_a_change_that_was_told_already_is_not_told_again(revision: int) -> None:
    picture = watching()
    assert picture.changed({"a": THEIRS}, revision) == []
    assert picture.next() == WatchFrom("/p/", 6)


def test_after_a_compaction_everything_is_read_and_told_if_it_is_news() -> None:
    picture = watching()
    picture.forgotten()
    assert picture.next() == ReadPrefix("/p/")
    assert picture.read(HasRead({"a": THEIRS}, 9)) == [Snapshot({"a": THEIRS}, 9)]
    picture.forgotten()
    assert picture.read(HasRead({"a": THEIRS}, 12)) == []
    assert picture.next() == WatchFrom("/p/", 13)


def test_a_change_that_a_watch_lost_is_found_by_comparing() -> None:
    picture = watching()
    picture.compare()
    assert picture.next() == ReadPrefix("/p/")
    assert picture.read(HasRead({}, 9)) == [Snapshot({}, 9)]


def test_etcd_is_away_once_and_back_after_everything_was_read() -> None:
    picture = watching()
    assert picture.unreachable("refused") == [StoreAway("refused")]
    assert picture.unreachable("refused") == []
    assert picture.next() == ReadPrefix("/p/")
    assert picture.read(HasRead({"a": THEIRS}, 9)) == [Snapshot({"a": THEIRS}, 9), StoreBack()]
    assert picture.unreachable("refused") == [StoreAway("refused")]
    assert picture.read(HasRead({"a": THEIRS}, 9)) == [StoreBack()]


def test_a_store_that_went_back_is_told_as_it_is() -> None:
    picture = watching()
    picture.compare()
    assert picture.read(HasRead({"a": MINE}, 3)) == [Snapshot({"a": MINE}, 3)]
    assert picture.next() == WatchFrom("/p/", 4)


# ------------------------------------------------------------------ leases


def present() -> Presence:
    """Announced, under lease 7."""
    presence = Presence(6_000)
    assert presence.next(is_due=True) is None
    presence.announce("k", b"1")
    presence.answered(Grant(6_000), Granted(7))
    presence.answered(PutLeased("k", b"1", 7), CallDone())
    return presence


def test_what_is_announced_is_put_under_a_lease_that_is_kept_alive() -> None:
    presence = Presence(6_000)
    presence.announce("k", b"1")
    assert presence.next(is_due=False) == Grant(6_000)
    presence.answered(Grant(6_000), Granted(7))
    assert presence.next(is_due=False) == PutLeased("k", b"1", 7)
    presence.answered(PutLeased("k", b"1", 7), CallDone())
    assert presence.next(is_due=False) is None
    assert presence.next(is_due=True) == KeepAlive(7)
    presence.answered(KeepAlive(7), Kept(is_there=True))
    assert presence.next(is_due=False) is None


def test_what_is_announced_anew_is_put_anew() -> None:
    presence = present()
    presence.announce("k", b"2")
    assert presence.next(is_due=True) == PutLeased("k", b"2", 7)


@pytest.mark.parametrize("call", [KeepAlive(7), PutLeased("k", b"1", 7)])
def test_a_lease_that_ended_is_replaced_and_everything_is_put_again(
    call: KeepAlive | PutLeased,
) -> None:
    presence = present()
    presence.answered(call, Kept(is_there=False))
    assert presence.next(is_due=False) == Grant(6_000)
    presence.answered(Grant(6_000), Granted(8))
    assert presence.next(is_due=False) == PutLeased("k", b"1", 8)


def test_what_vanished_under_a_lease_that_is_confirmed_is_put_again() -> None:
    presence = present()
    assert presence.announced == {"k"}
    assert presence.vanished(["k", "other"])
    assert not presence.vanished(["other"])
    assert presence.next(is_due=False) == PutLeased("k", b"1", 7)
    presence.answered(PutLeased("k", b"1", 7), CallDone())
    assert presence.next(is_due=False) is None


def test_what_vanished_before_its_put_was_confirmed_is_put_again() -> None:
    presence = present()
    presence.announce("k", b"2")
    assert presence.next(is_due=False) == PutLeased("k", b"2", 7)
    assert presence.vanished(["k"])
    presence.answered(PutLeased("k", b"2", 7), CallDone())
    assert presence.next(is_due=False) == PutLeased("k", b"2", 7)
