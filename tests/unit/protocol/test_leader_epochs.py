"""Where two logs part, told by their epochs alone."""

import pytest

from oncemq.protocol.names import LeaderEpoch, Serial
from oncemq.protocol.replicas.leader_epochs import EPOCHS_KEPT, EpochStart, LeaderEpochs


def table(*starts: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochStart(LeaderEpoch(epoch), Serial(serial)) for epoch, serial in starts)


@pytest.mark.parametrize(
    ("own", "last", "other", "other_last", "agreed"),
    [
        ((), 5, (), 3, 3),  # two servers alone: epoch 0
        ((), 0, ((1, 1),), 4, 0),  # an empty log
        (((1, 1),), 7, ((1, 1),), 4, 4),
        (((1, 1),), 4, ((1, 1),), 7, 4),  # more than the leader has: uncommitted
        (((1, 1), (3, 5)), 9, ((1, 1), (2, 5)), 8, 4),  # another leader's records from 5 on
        (((1, 1), (3, 5)), 9, ((1, 1), (2, 4)), 8, 3),
        (((1, 1), (2, 4), (3, 6)), 9, ((1, 1), (2, 4)), 8, 5),
        (((2, 4), (3, 6)), 9, (), 3, 3),  # of before the cluster
        (((1, 1),), 3, ((2, 1),), 3, 0),
    ],
)
def test_logs_agree_up_to_the_end_of_their_newest_common_epoch(
    own: tuple[tuple[int, int], ...],
    last: int,
    other: tuple[tuple[int, int], ...],
    other_last: int,
    agreed: int,
) -> None:
    assert table(*own).parting(Serial(last), table(*other), Serial(other_last)) == agreed
    assert table(*other).parting(Serial(other_last), table(*own), Serial(last)) == agreed


def test_an_epoch_that_is_known_begins_once() -> None:
    known = table((1, 1), (2, 4))
    known.began(EpochStart(LeaderEpoch(2), Serial(4)))
    known.began(EpochStart(LeaderEpoch(1), Serial(9)))
    assert known.starts == table((1, 1), (2, 4)).starts
    assert [known.epoch_of(Serial(serial)) for serial in (0, 3, 4, 9)] == [0, 1, 2, 2]


def test_what_is_before_the_epochs_that_are_kept_is_not_taken_for_epoch_0() -> None:
    many = table()
    for epoch in range(1, EPOCHS_KEPT + 10):
        many.began(EpochStart(LeaderEpoch(epoch), Serial(epoch)))
    assert len(many.starts) == EPOCHS_KEPT
    assert many.parting(Serial(2_000), table(), Serial(5)) == 0
