"""A state that was replaced by an old copy, while nobody knew which subscription there was."""

from oncemq.audit.checker import check
from oncemq.audit.facts import GivenFact, Held, Joined, Joining, Leaving, StoredFact, Tainted
from oncemq.protocol.names import Micros, Offset, Sequence

LOG = [
    Held("t", Offset(0), Offset(2)),
    *(StoredFact("t", Offset(n), "p", Sequence(n + 1), Micros(n)) for n in range(2)),
]
# Its end was never confirmed, and it was asked for again: the same one, or another.
LIFE = [
    Joining("w", "t", True, 1),
    Joined("w", "t", 7, 1, 1, 2),
    *(GivenFact("w", "t", Offset(n), subscription=7, process=1, asked=3, moment=4) for n in (0, 1)),
    Leaving("w", "t", 5),
    Joining("w", "t", True, 6),
]
AGAIN = GivenFact("w", "t", Offset(1), subscription=7, process=2, asked=8, moment=9)


def test_an_old_copy_has_old_cursors_of_every_subscription_that_may_be_there() -> None:
    assert check([*LOG, *LIFE, Tainted("w", 7, 2), AGAIN]).counts == {}


def test_what_comes_again_without_an_old_copy_or_before_it_is_found() -> None:
    assert check([*LOG, *LIFE, AGAIN]).counts == {"redelivered": 1}
    assert check([*LOG, *LIFE, AGAIN, Tainted("w", 10, 2)]).counts == {"redelivered": 1}
