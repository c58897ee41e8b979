"""Each kind of finding by the smallest history that has it, and by one as near that has none."""

from collections.abc import Callable

import pytest

from oncemq.audit.checker import check
from oncemq.audit.facts import (
    DISCARDED,
    NEVER,
    OPEN,
    RECORDED,
    REFUSED,
    Fact,
    GivenFact,
    Held,
    Joined,
    Joining,
    Leaving,
    Left,
    OpenedFact,
    PutFact,
    StoredFact,
    Tainted,
)
from oncemq.audit.findings import KINDS, Finding
from oncemq.protocol.names import Micros, Offset, Sequence


class Story:
    """A history told step by step: publisher p, subscriber s, topic t."""

    def __init__(self) -> None:
        self._puts: list[Fact] = []
        self._logs: list[Fact] = []
        self._lives: list[Fact] = []
        self._moment = 0

    def now(self) -> int:
        self._moment += 1
        return self._moment

    def put(
        self, *names: str, at: int | None = None, told: str = "stored", why: str = "",
        answered: bool = True, process: int = 1, line: str = "p", required: bool = False,
    ) -> "Story":  # fmt: skip
        begun = self.now()
        self._puts.append(
            PutFact(
                topic="t", count=len(names), told=told, why=why,
                offset=None if at is None else Offset(at),
                messages=tuple(name.encode() for name in names),
                digests=tuple(b"bytes of " + name.encode() for name in names),
                client="p", process=process, line=line, lasting=True, required=required,
                begun=begun, answered=self.now() if answered else NEVER,
            )
        )  # fmt: skip
        return self

    def joins(
        self, subscription: int = 1, *, confirmed: bool = True, old: bool = False, above: int = 0
    ) -> "Story":
        asked = self.now()
        self._lives.append(Joining("s", "t", old, asked, above))
        if confirmed:
            self._lives.append(Joined("s", "t", subscription, 1, asked, self.now()))
        return self

    def leaves(self, *, confirmed: bool = True) -> "Story":
        self._lives.append(Leaving("s", "t", self.now()))
        if confirmed:
            self._lives.append(Left("s", "t", self.now()))
        return self

    def gets(
        self, *named: str, at: int, subscription: int = 1, changed: bool = False,
        asked: int | None = None, process: int = 1, allowed: int = 0,
    ) -> "Story":  # fmt: skip
        for offset, name in enumerate(named, at):
            when = self.now() if asked is None else asked
            digest = b"other bytes" if changed else b"bytes of " + name.encode()
            self._lives.append(
                GivenFact(
                    "s", "t", Offset(offset), digest, name.encode(), subscription, process, when,
                    self.now(), allowed,
                )
            )  # fmt: skip
        return self

    def begins_to_join(self) -> int:
        self._lives.append(Joining("s", "t", False, asked := self.now()))
        return asked

    def begins_to_leave(self) -> int:
        self._lives.append(Leaving("s", "t", asked := self.now()))
        return asked

    def has_joined(self, subscription: int, *, asked: int, process: int = 1) -> "Story":
        self._lives.append(Joined("s", "t", subscription, process, asked, self.now()))
        return self

    def has_left(self, *, asked: int) -> "Story":
        self._lives.append(Left("s", "t", self.now(), asked))
        return self

    def opens(self, client: str, process: int) -> "Story":
        self._lives.append(OpenedFact(client, process, process, self.now()))
        return self

    def taints(self, client: str, *, copied: int = 0) -> "Story":
        self._lives.append(Tainted(client, self.now(), copied))
        return self

    def log(
        self, *named: str, low: int = 0, end: int | None = None, numbers: tuple[int, ...] = (),
        times: tuple[int, ...] = (), replica: str = "",
    ) -> "Story":  # fmt: skip
        high = low + len(named) if end is None else end
        self._logs.append(Held("t", Offset(low), Offset(high), replica))
        for place, name in enumerate(named):
            self._logs.append(
                StoredFact(
                    "t", Offset(low + place), "producer",
                    Sequence(numbers[place] if numbers else place + 1),
                    Micros(times[place] if times else place), b"bytes of " + name.encode(),
                    b"" if name.startswith("_") else name.encode(), replica,
                )
            )  # fmt: skip
        return self

    def findings(self) -> list[Finding]:
        helds = [fact for fact in self._logs if isinstance(fact, Held)]
        stored = [fact for fact in self._logs if not isinstance(fact, Held)]
        return check([*helds, *self._puts, *stored, *self._lives]).kept

    def found(self) -> list[tuple[str, int]]:
        return [(each.kind, each.offset) for each in self.findings()]

    def told(self) -> list[str]:
        return [str(each) for each in self.findings()]


def told(*order: str) -> Story:
    """Three messages put after the subscription, and given in this order."""
    story = Story().joins().put("a", at=0).put("b", at=1).put("c", at=2)
    for name in order:
        story.gets(name, at="abc".index(name))
    return story


Pair = tuple[Callable[[], Story], int, Callable[[], Story]]

TABLE: dict[str, Pair] = {
    "lost": (
        lambda: Story().joins().put("a", told=RECORDED, answered=False),
        0,
        lambda: Story().joins().put("a", told=OPEN, answered=False),
    ),
    "lost_prefix": (
        lambda: told("b", "c"),
        0,
        lambda: Story().put("a", at=0).joins().put("b", at=1).gets("b", at=1),
    ),
    "lost_middle": (lambda: told("a", "c"), 1, lambda: told("a", "b", "c")),
    "lost_tail": (lambda: told("a", "b"), 2, lambda: told("a", "b").leaves()),
    "gap": (lambda: Story().log("_a", end=2), 1, lambda: Story().log("_a", low=7, end=8)),
    "lost_sequence": (
        lambda: Story().log("_a", "_b", numbers=(1, 3)),
        1,
        lambda: Story().log("_a", "_b", numbers=(5, 6)),
    ),
    "duplicate": (
        lambda: Story().joins().put("a", at=0).gets("a", "a", at=0),
        1,
        lambda: Story().joins().put("a", at=0).put("b", at=1).gets("a", "b", at=0),
    ),
    "redelivered": (
        lambda: told("a", "b", "c").gets("c", at=2),
        2,
        lambda: told("a", "b", "c").taints("s").gets("c", at=2),
    ),
    "reordered": (lambda: told("a", "c", "b"), 1, lambda: told("a", "b", "c")),
    "reordered_publisher": (
        lambda: Story().put("a", at=1).put("b", at=0),
        0,
        lambda: Story().put("a", at=1).put("b", at=0, line="q"),
    ),
    "torn_batch": (
        lambda: Story().joins().put("a", "b", told=OPEN).gets("a", at=0).put("c", at=1, line="q")
        .gets("c", at=1).gets("b", at=2),
        0,
        lambda: Story().joins().put("a", "b", told=OPEN).gets("a", at=0).put("c", at=2, line="q")
        .gets("b", at=1).gets("c", at=2),
    ),
    "time_back": (
        lambda: Story().log("_a", "_b", times=(5, 4)),
        1,
        lambda: Story().log("_a", "_b", times=(5, 5)),
    ),
    "phantom": (
        lambda: Story().joins().gets("a", at=0),
        0,
        lambda: Story().joins().put("a", told=OPEN, answered=False).gets("a", at=0),
    ),
    "corrupt": (
        lambda: Story().joins().put("a", at=0).gets("a", at=0, changed=True),
        0,
        lambda: Story().joins().put("a", at=0).gets("a", at=0),
    ),
    "failed_but_delivered": (
        lambda: Story().joins().put("a", told=REFUSED, why="storage_full").gets("a", at=0),
        0,
        lambda: Story().taints("p").joins().put("a", told=REFUSED, why="storage_full")
        .gets("a", at=0),
    ),
    "discarded": (
        lambda: Story().joins().put("a", told=DISCARDED),
        0,
        lambda: Story().joins(confirmed=False).put("a", told=DISCARDED),
    ),
    "conflict": (
        lambda: Story().put("a", told=REFUSED, why="payload_conflict"),
        0,
        lambda: Story().taints("p").put("a", told=REFUSED, why="payload_conflict"),
    ),
    "boundary": (
        lambda: Story().put("a", at=0).joins().gets("a", at=0),
        0,
        lambda: Story().put("a", at=0).joins(old=True).gets("a", at=0),
    ),
    "changed_receipt": (
        lambda: Story().put("a", at=0).put("b", told=OPEN, line="q").log("b"),
        0,
        lambda: Story().put("a", at=0).log("a"),
    ),
    "diverged": (
        lambda: Story().log("_a", "_b", replica="1").log("_a", "_c", replica="2"),
        1,
        lambda: Story().log("_a", "_b", replica="1").log("_a", replica="2"),
    ),
    "not_fenced": (
        lambda: Story().opens("p", 2).put("a", at=0, process=1),
        0,
        lambda: Story().opens("p", 2).put("a", at=0, process=2),
    ),
}  # fmt: skip


def test_every_kind_has_its_pair() -> None:
    assert set(TABLE) == set(KINDS)


@pytest.mark.parametrize("kind", TABLE)
def test_a_finding_is_made_and_a_near_miss_is_none(kind: str) -> None:
    bad, offset, near = TABLE[kind]
    found = bad().found()
    assert (kind, offset) in found
    assert {each for each, _ in found} <= {kind, *ALONG.get(kind, ())}
    assert near().found() == []


# What cannot be broken without breaking something else, too.
ALONG = {"changed_receipt": ("lost",)}


# ------------------------------------------------------------------ the other ways


def test_nothing_comes_after_an_unsubscribe_that_was_confirmed() -> None:
    late = Story().joins().put("a", at=0).leaves().gets("a", at=0)
    assert late.found() == [("boundary", 0)]
    under_way = Story().joins().put("a", at=0)
    asked = under_way.now()
    assert under_way.leaves().gets("a", at=0, asked=asked).found() == []


def test_what_is_missing_before_the_last_message_is_lost_though_the_subscription_ended() -> None:
    assert told("a", "c").leaves().found() == [("lost_middle", 1)]
    assert told("a", "c").leaves(confirmed=False).found() == [("lost_middle", 1)]


def test_a_message_without_any_subscription_is_outside_of_all() -> None:
    assert Story().put("a", at=0).gets("a", at=0).found() == [("boundary", 0)]


def test_a_subscription_made_again_is_another_one() -> None:
    story = Story().joins().put("a", at=0).gets("a", at=0).leaves().put("b", at=1).joins(2)
    assert story.put("c", at=2).gets("c", at=2, subscription=2).found() == []


def test_a_subscription_that_is_suddenly_another_was_lost() -> None:
    assert Story().joins(1).joins(2).found() == [("boundary", 0)]


def test_a_subscribe_or_unsubscribe_without_an_answer_may_be_either_way() -> None:
    unsure = Story().joins(confirmed=False).put("a", at=0)
    assert unsure.found() == []
    assert unsure.gets("a", at=0).found() == []
    left = Story().joins().leaves(confirmed=False).put("a", at=0)
    assert left.found() == []
    assert left.joins(1).found() == [("lost_tail", 0)]  # it had never ended


def test_a_subscribe_makes_no_subscription_with_a_number_below_those_it_can_make() -> None:
    def unsure() -> Story:
        return Story().joins(confirmed=False, above=5).put("a", at=0)

    assert unsure().gets("a", at=0, subscription=5).found() == []
    assert unsure().gets("a", at=0, subscription=4).found() == [("boundary", 0)]
    again = unsure().joins(confirmed=False, above=7)  # the first of the two may have made one
    assert again.gets("a", at=0, subscription=5).found() == []


def test_what_a_subscription_that_never_ended_was_given_is_given_once() -> None:
    story = Story().joins().put("a", at=0).gets("a", at=0).leaves(confirmed=False)
    story.joins(confirmed=False).gets("a", at=0)
    assert ("redelivered", 0) in story.joins(1).found()


def test_an_old_message_that_arrives_after_the_next_subscription_began_is_the_one_befores() -> None:
    def left_and_asked_for_again() -> Story:  # by pattern: which subscriptions it makes is not told
        story = Story().joins(0).put("a", at=0).leaves(confirmed=False).joins(0).put("b", at=1)
        return story.gets("a", at=0, subscription=4)

    later = left_and_asked_for_again().gets("b", at=1, subscription=5)
    assert later.found() == []
    assert later.gets("b", at=1, subscription=5).found() == [("redelivered", 1)]
    assert later.put("c", at=2).found() == [("redelivered", 1), ("lost_tail", 2)]
    assert left_and_asked_for_again().put("c", at=2).gets("c", at=2, subscription=5).found() == [
        ("lost_prefix", 1)
    ]


def test_what_a_get_under_way_brings_of_the_next_subscription_is_not_the_one_befores() -> None:
    def left_by_name(*, before: bool = False) -> Story:  # the pattern may make it again
        story = Story().joins(0).put("a", at=0)
        asked = story.now()
        if before:
            story.gets("a", at=0, subscription=4, asked=asked)
        story.leaves().joins(confirmed=False, old=True).put("b", at=1)
        return story if before else story.gets("a", at=0, subscription=4, asked=asked)

    assert left_by_name().gets("b", at=1, subscription=4).found() == []
    again = left_by_name().gets("b", at=1, subscription=4).gets("a", at=0, subscription=4)
    assert again.found() == [("redelivered", 0)]
    known = left_by_name(before=True).gets("b", at=1, subscription=4)
    assert known.found() == [("boundary", 1)]  # that one had ended


def test_a_put_without_an_answer_may_be_there_or_not_but_once() -> None:
    story = Story().joins().put("a", told=OPEN, answered=False)
    assert story.found() == []
    assert story.gets("a", at=0).found() == []
    assert story.gets("a", at=1).found() == [("duplicate", 1)]


def test_an_acknowledged_put_must_be_in_the_log_where_its_receipt_says() -> None:
    assert Story().put("a", at=0).put("b", at=1).log("a", "b").found() == []
    assert Story().put("a", at=0).put("b", at=1).log("a").found() == [("lost", 1)]
    assert Story().put("a", at=0).put("b", at=1).log("b", low=1).found() == []  # it was let go
    assert Story().put("a", told=RECORDED).log().found() == [("lost", 0)]
    moved = Story().put("a", at=1).put("b", at=0).log("a", "b").found()
    assert {kind for kind, _ in moved} >= {"changed_receipt", "duplicate"}


def test_a_message_in_the_log_that_nobody_put_or_that_failed_is_found() -> None:
    assert Story().log("a").found() == [("phantom", 0)]
    refused = Story().put("a", told=REFUSED, why="too_large").log("a")
    assert refused.found() == [("failed_but_delivered", 0)]


def test_a_required_put_is_never_discarded() -> None:
    assert Story().put("a", told=DISCARDED).found() == []
    assert Story().put("a", told=DISCARDED, required=True).found() == [("discarded", 0)]
    assert Story().put("a", told=REFUSED, why="unwanted", required=True).found() == []


def test_two_readers_who_have_different_messages_in_one_place_diverge() -> None:
    story = Story().joins().put("a", told=OPEN).put("b", told=OPEN)
    assert ("diverged", 0) in story.gets("a", at=0).gets("b", at=0).found()


def test_an_older_process_must_not_subscribe_or_be_given_anything() -> None:
    assert Story().opens("s", 2).joins().found() == [("not_fenced", 0)]
    story = Story().joins().put("a", at=0)
    asked = story.now()
    assert story.opens("s", 2).gets("a", at=0, asked=asked).found() == []  # it asked before
    late = Story().joins().put("a", at=0).opens("s", 2).gets("a", at=0)
    assert late.found() == [("not_fenced", 0)]


def test_in_a_database_an_older_process_may_go_on_until_its_row_is_taken_over() -> None:
    story = Story().joins().put("a", at=0)
    taken = story.now()
    assert story.opens("s", 2).gets("a", at=0, allowed=taken).found() == []
    story = Story().joins().put("a", at=0).opens("s", 2)
    late = story.now()
    assert story.gets("a", at=0, allowed=late).found() == [("not_fenced", 0)]


def test_what_was_refused_and_an_old_copy_put_again_has_no_place_in_the_order() -> None:
    story = Story().joins().put("a", told=REFUSED, why="storage_full").put("b", at=0).taints("p")
    assert story.gets("b", "a", at=0).found() == []


def put_behind_a_refused_one(refused: bool = True) -> tuple[Story, int]:
    """And the moment when its outbox was copied: both were unsent."""
    story = Story().joins()
    if refused:  # heard of after the copy
        story.put("a", told=REFUSED, why="storage_full", answered=False)
    return story.put("b", at=0), story.now()


def test_an_old_copy_puts_again_what_waited_behind_a_refused_put_and_once_only() -> None:
    story, copied = put_behind_a_refused_one()
    story.taints("p", copied=copied)
    assert story.gets("b", "a", "b", at=0).found() == []
    assert story.gets("b", at=3).found() == [("duplicate", 3)]


def test_what_did_not_wait_behind_a_refused_put_when_it_was_copied_is_put_once() -> None:
    story, copied = put_behind_a_refused_one(refused=False)
    assert story.taints("p", copied=copied).gets("b", "b", at=0).found() == [("duplicate", 1)]
    story, _ = put_behind_a_refused_one()
    assert story.taints("p", copied=1).gets("b", "b", at=0).found() == [("duplicate", 1)]
    story, _ = put_behind_a_refused_one()
    assert story.taints("p").gets("b", "b", at=0).found() == [("duplicate", 1)]


def test_a_client_that_lost_its_cursors_still_gets_the_end() -> None:
    story = told("a", "b").taints("s")
    assert story.found() == [("lost_tail", 2)]
    assert story.gets("a", "b", "c", at=0).found() == []


def test_a_client_that_lost_its_cursors_is_held_to_what_is_behind_all_it_was_given_since() -> None:
    assert told("a").taints("s").gets("c", at=2).found() == []
    again = told("a", "b").taints("s").gets("a", "b", at=0)
    assert again.found() == [("lost_tail", 2)]


def test_a_client_that_lost_its_cursors_and_subscribes_again_may_get_the_same_again() -> None:
    assert told("a", "b").taints("s").joins(1).gets("b", "c", at=1).found() == []


def left_while_another_process_joins() -> tuple[Story, int]:
    """And when that one began; the answer to the unsubscribe comes after that."""
    story = told("a", "b", "c")
    leaving = story.begins_to_leave()
    joining = story.begins_to_join()
    return story.has_left(asked=leaving), joining


def test_what_began_while_another_process_was_leaving_may_be_there_or_not() -> None:
    story, joining = left_while_another_process_joins()
    assert story.has_joined(2, asked=joining, process=2).put("d", at=3).found() == []
    assert story.gets("d", at=3, subscription=2, process=2).found() == []


def test_what_began_while_another_process_was_leaving_is_sure_once_it_is_confirmed_anew() -> None:
    story, joining = left_while_another_process_joins()
    story.has_joined(2, asked=joining, process=2)
    story.joins(2).put("d", told=OPEN, answered=False).put("e", at=4)
    assert story.found() == [("lost_tail", 4)]
    assert story.gets("e", at=4, subscription=2).found() == []


def test_what_is_asked_for_after_a_leave_was_confirmed_is_not_of_what_was_left() -> None:
    story, joining = left_while_another_process_joins()
    story.has_joined(2, asked=joining, process=2).put("d", at=3)
    assert story.gets("d", at=3, subscription=1).found() == [("boundary", 3)]


def test_an_answer_that_comes_after_another_process_has_left_makes_nothing_sure() -> None:
    story = Story()
    joining = story.begins_to_join()
    story.leaves().has_joined(1, asked=joining).put("a", at=0).log("a")
    assert story.found() == []


def test_an_answer_of_before_says_nothing_of_what_began_since() -> None:
    story = Story()
    early = story.begins_to_join()
    story.leaves().begins_to_join()
    story.has_joined(1, asked=early).put("a", at=0).log("a")
    assert story.found() == []


def test_a_subscription_begins_behind_all_that_the_one_before_it_was_given() -> None:
    def given_once() -> Story:
        return Story().joins().put("a", told=OPEN, answered=False).gets("a", at=0)

    another = given_once().leaves().joins(2).gets("a", at=0, subscription=2)
    assert another.found() == [("boundary", 0)]
    perhaps_the_same = given_once().leaves(confirmed=False).joins(2).gets("a", at=0, subscription=2)
    assert perhaps_the_same.found() == [("redelivered", 0)]


def test_what_came_while_nobody_knew_whether_a_subscription_had_ended_is_its_own() -> None:
    def asked_for_again() -> Story:
        story = told("a").leaves(confirmed=False).joins(confirmed=False)
        return story.gets("b", at=1, subscription=0)

    known = asked_for_again().joins(1).gets("c", at=2)
    assert known.found() == []
    assert known.leaves().put("d", at=3).found() == []
    twice = asked_for_again().gets("a", at=0, subscription=0).joins(1).gets("c", at=2)
    assert twice.found() == [("reordered", 0), ("redelivered", 0)]


def test_messages_of_subscriptions_that_nobody_numbered_are_each_of_its_own() -> None:
    story = Story().joins(0).put("a", at=0).gets("a", at=0, subscription=4).leaves()
    story.joins(0).put("b", at=1).gets("b", at=1, subscription=5)
    assert story.found() == []
    assert story.gets("b", at=1, subscription=5).found() == [("redelivered", 1)]


def test_numbers_move_on_to_the_stays_they_are_of_when_a_higher_one_is_met() -> None:
    story = Story().joins(0).leaves(confirmed=False).joins(0).put("a", at=0)
    story.leaves(confirmed=False).joins(0).put("b", at=1)
    story.gets("a", at=0, subscription=4).gets("b", at=1, subscription=5)
    assert story.found() == []


@pytest.mark.parametrize("confirmed", [False, True])
def test_what_was_asked_for_while_a_subscription_was_there_is_not_the_next_ones(
    confirmed: bool,
) -> None:
    story = Story().joins(0).put("a", at=0)
    asked = story.now()
    story.leaves(confirmed=confirmed).joins(confirmed=False)
    story.gets("a", at=0, subscription=4, asked=asked)
    assert story.joins(5).found() == []


def test_puts_that_nobody_ordered_are_stored_in_any_order() -> None:
    assert Story().put("a", at=1, line="").put("b", at=0, line="").found() == []


@pytest.mark.parametrize(
    ("story", "said"),
    [
        (
            Story().joins().gets("x" * 99, at=0),
            f"phantom: t@0: nobody put {b'x' * 40!r}, which s has",
        ),
        (
            Story().opens("p", 2).opens("p", 3).put("a", at=0),
            "not_fenced: t@0: p's process 1 had a put accepted after 3 began",
        ),
        (
            Story().joins().put("a", told=REFUSED, why="storage_full").gets("a", at=0),
            "failed_but_delivered: t@0: to s, though its put was told 'storage_full'",
        ),
        (
            Story().put("a", told=DISCARDED).joins().gets("a", at=0),
            "failed_but_delivered: t@0: to s, though its put was told 'not stored'",
        ),
        (
            Story().log("_a", "_b", times=(9, 4)),
            "time_back: t@1: 5 µs before the message before it",
        ),
        (
            Story().log("_a", replica="1").log("_b", replica="2", numbers=(7,)),
            "diverged: t@0: producer#1 on 1, producer#7 on 2",
        ),
        (
            Story().joins().put("a", at=0).gets("a", at=0).gets("a", at=0),
            "redelivered: t@0: to s again, after t@0",
        ),
    ],
)
def test_a_finding_says_who_and_what(story: Story, said: str) -> None:
    assert story.told() == [said]
