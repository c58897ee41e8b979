"""What is due, and when: the last word counts, and words that are out of date do not pile up."""

import heapq
from random import Random

from oncemq.broker.waits import SPARE, Deadlines
from oncemq.protocol.names import Micros


def taken(deadlines: Deadlines[str], now: int) -> list[str]:
    found: list[str] = []
    while (key := deadlines.take(Micros(now))) is not None:
        found.append(key)
    return found


def test_what_is_due_comes_in_order_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, moment in (("b", 2), ("a", 1), ("c", 3)):
        deadlines.set(key, Micros(moment))
    assert deadlines.next() == 1
    assert taken(deadlines, 2) == ["a", "b"]
    assert (deadlines.next(), len(deadlines)) == (3, 1)
    assert taken(deadlines, 2) == []


def test_the_last_word_counts_earlier_or_later() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for moment in (5, 9, 2, 7):
        deadlines.set("a", Micros(moment))
    assert taken(deadlines, 6) == []
    assert deadlines.next() == 7
    deadlines.drop("a")
    assert (deadlines.next(), taken(deadlines, 99)) == (None, [])
    deadlines.set("a", Micros(9))
    assert taken(deadlines, 9) == ["a"]


def test_one_key_set_again_and_again_takes_no_more_room_than_one() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("idle", Micros(1))  # it stands first, so that nothing behind it is cleared away
    for moment in range(2, 10_000):
        deadlines.set("busy", Micros(moment))
        assert len(deadlines._heap) <= 2 * 2 + SPARE + 1
    assert taken(deadlines, 10_000) == ["idle", "busy"]


def test_many_keys_set_again_and_again_still_come_in_order() -> None:
    draw = Random(7)
    deadlines: Deadlines[str] = Deadlines()
    plain: dict[str, int] = {}
    for count in range(1_000):
        key = f"{draw.randrange(20)}"
        plain[key] = 10_000 - count  # each is the next one, so that what is late stays in the heap
        deadlines.set(key, Micros(plain[key]))
        assert deadlines.next() == min(plain.values())
    assert taken(deadlines, 10_000) == sorted(plain, key=lambda key: plain[key])


def test_it_does_what_looking_at_everything_would_do() -> None:
    draw = Random(7)
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, int] = {}
    for now in range(3_000):
        key = draw.randrange(40)
        if draw.random() < 0.3:
            deadlines.drop(key)
            plain.pop(key, None)
        else:
            plain[key] = now + draw.randrange(30)
            deadlines.set(key, Micros(plain[key]))
        assert deadlines.next() == min(plain.values(), default=None)
        due = heapq.nsmallest(99, ((at, key) for key, at in plain.items() if at <= now))
        found = []
        while (one := deadlines.take(Micros(now))) is not None:
            found.append((plain.pop(one), one))
        assert found == due
