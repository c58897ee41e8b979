"""Who is asked next, and when: the leader of the highest epoch, else each in its turn."""

from itertools import pairwise

import pytest

from oncemq.protocol.names import Micros
from oncemq.protocol.replies import not_leader
from oncemq.session.inflight import FIRST_WAIT
from oncemq.session.leader_search import (
    BELIEVED_TRIES,
    LONGEST_PAUSE,
    LONGEST_TRY,
    SHORT_PAUSE,
    TRY_MICROS,
    LeaderSearch,
)

THREE = ["a", "b", "c"]


class Searching:
    """A search, with the time in the test's hands."""

    def __init__(self, servers: list[str], chance: float = 0.0) -> None:
        self.servers = servers
        self.search = LeaderSearch(servers[0], lambda: chance)
        self.now = 1_000_000
        self.pauses: list[int] = []

    def refused(self, leader: str = "", epoch: int = 0) -> str:
        """The one that is asked refuses: who is asked next."""
        at = self.search.refused(not_leader(leader, epoch), self.servers, Micros(self.now))
        return self._go_on(at)

    def failed(self) -> str:
        return self._go_on(self.search.failed("is silent", self.servers, Micros(self.now)))

    def _go_on(self, at: int) -> str:
        self.pauses.append(at - self.now)
        self.now = at
        return self.search.go_on(self.servers, Micros(at))


@pytest.fixture
def three() -> Searching:
    return Searching(THREE)


def test_the_leader_that_is_named_is_asked_next_and_at_once(three) -> None:
    assert three.refused("c", 4) == "c"
    assert (three.pauses, three.search.is_named) == ([0], True)


def test_a_leader_need_not_be_one_of_the_addresses_that_were_given(three) -> None:
    assert three.refused("d", 4) == "d"
    assert [three.failed() for _ in range(4)] == ["b", "c", "d", "a"]


def test_without_a_hint_the_next_address_is_asked_after_a_short_pause(three) -> None:
    assert (three.refused(), three.refused()) == ("b", "c")
    assert three.pauses == [SHORT_PAUSE] * 2


def test_half_of_a_pause_is_left_to_chance() -> None:
    late = Searching(THREE, chance=0.999)
    late.refused()
    assert SHORT_PAUSE // 2 <= late.pauses[0] <= SHORT_PAUSE * 51 // 100


def test_who_gives_no_connection_is_followed_by_the_next_without_a_pause(three) -> None:
    assert (three.failed(), three.failed()) == ("b", "c")
    assert three.pauses == [0, 0]


def test_once_all_were_asked_the_pauses_grow(three) -> None:
    for _ in range(10):
        three.failed()
    assert three.pauses[:2] == [0, 0]
    assert three.pauses[2:] == [min(SHORT_PAUSE << n, LONGEST_PAUSE) for n in range(8)]


def test_a_pause_counts_from_when_the_one_that_failed_was_first_asked(three) -> None:
    for _ in range(9):
        three.failed()
    three.now += LONGEST_PAUSE  # so long it took until it counted as silent
    three.failed()
    assert three.pauses[-1] == 0


def test_a_leader_of_a_lower_epoch_is_passed_over(three) -> None:
    assert three.refused("b", 7) == "b"
    assert three.refused("a", 6) == "c"


def test_a_leader_of_a_higher_epoch_is_asked_again_soon_however_long_the_search(three) -> None:
    for _ in range(6):
        three.failed()
    asked = three.search.address
    assert asked == "a"
    assert three.refused("b", 9) == "b"
    assert three.pauses[-1] <= SHORT_PAUSE
    three.failed()
    assert three.refused("b", 10) == "b"


def test_a_leader_that_gave_no_answer_is_not_asked_again_because_it_is_named_again(three) -> None:
    assert three.refused("b", 4) == "b"
    assert three.failed() == "c"
    assert three.refused("b", 4) == "a"


def test_one_that_names_itself_is_not_asked_again_at_once(three) -> None:
    assert three.refused("a", 5) == "b"
    assert three.refused("a", 5) == "c"
    assert three.refused("a", 5) == "a"  # in its turn: by now it may serve


@pytest.mark.parametrize("epochs", [(5, 5), (5, 6), (0, 0), (6, 5)])
def test_two_that_name_each_other_neither_keep_the_client_nor_make_it_hurry(epochs) -> None:
    search = Searching(THREE)
    names = {"a": ("b", epochs[0]), "b": ("a", epochs[1]), "c": ("", 0)}
    asked = ["a"]
    for _ in range(60):
        asked.append(search.refused(*names[asked[-1]]))
    assert "c" in asked[:4]
    assert asked.count("c") >= 10
    assert search.now - 1_000_000 > 8 * LONGEST_PAUSE


def test_a_growing_epoch_at_each_step_is_no_reason_to_hurry_either() -> None:
    search = Searching(THREE)
    for epoch in range(1, 40):
        search.refused("ab"[epoch % 2], epoch)
    assert min(search.pauses[3:]) >= SHORT_PAUSE


def test_an_answer_ends_the_search(three) -> None:
    for _ in range(8):
        three.refused()
    three.search.answered()
    assert (three.search.outcomes, three.search.was_refused) == ({}, False)
    three.now += 1_000_000
    assert three.refused("b", 1) == "b"
    assert three.pauses[-1] == 0


def test_a_cluster_made_anew_with_low_epochs_is_found(three) -> None:
    three.refused("b", 900)
    for _ in range(2 * BELIEVED_TRIES):
        three.failed()
    while three.search.address != "a":
        three.failed()
    assert three.refused("d", 1) == "d"


def test_one_alone_that_refuses_is_asked_again_with_growing_pauses() -> None:
    alone = Searching(["a"])
    assert {alone.refused() for _ in range(12)} == {"a"}
    assert all(one <= other for one, other in pairwise(alone.pauses))
    assert alone.pauses[-1] == LONGEST_PAUSE


def test_how_long_a_server_has_to_connect_and_to_answer() -> None:
    alone, three = Searching(["a"]), Searching(THREE)
    assert alone.search.connect_micros(["a"]) == LONGEST_TRY
    assert three.search.connect_micros(THREE) == TRY_MICROS
    assert three.search.answer_micros(THREE) == TRY_MICROS
    three.search.answered()
    assert three.search.answer_micros(THREE) == FIRST_WAIT
    three.failed()
    assert three.search.answer_micros(THREE) == TRY_MICROS
    for _ in range(40):
        three.failed()
    assert three.search.connect_micros(THREE) == LONGEST_TRY
    assert three.search.answer_micros(THREE) == FIRST_WAIT
    three.search.answered()
    assert three.refused("d", 3) == "d"
    assert three.search.answer_micros(THREE) == FIRST_WAIT
