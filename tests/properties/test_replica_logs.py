"""Laws of replicated logs: equal records, equal chain values, whatever each disk did when."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq.storage.log.frame_runs import FramesRefused
from oncemq.storage.log.log import LogOptions
from tests.harness.replicas import Replica, records
from tests.harness.storage import SMALL

WIDE = LogOptions(segment_bytes=1 << 20, allocate_bytes=4096, reserve_bytes=256)

# what happens to a log: messages of a topic, a fact, an epoch that begins
events = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3), st.integers(0, 300)),
        st.tuples(st.just("fact"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("epoch"), st.integers(1, 3), st.just(0)),
    ),
    min_size=1,
    max_size=25,
)
Events = list[tuple[str, int, int]]


def play(log: Replica, happening: Events, commits: Random | None) -> None:
    """Append it all; with `commits`, in groups of any size."""
    for what, number, size in happening:
        match what:
            case "put":
                log.put(number, b"m%d " % log.sequence + b"x" * size)
            case "fact":
                log.fact(number)
            case _:
                log.lead(log.log.newest.leader_epoch + number)
        if commits is not None and commits.random() < 0.5:
            log.commit()
    log.commit()


@given(happening=events, seeds=st.tuples(st.integers(), st.integers()))
@settings(deadline=None, max_examples=60)
def test_equal_records_have_equal_chain_values_whatever_was_synced_when(
    happening: Events, seeds: tuple[int, int]
) -> None:
    logs = Replica(), Replica(options=WIDE), Replica()
    for log, seed in zip(logs, (*seeds, None), strict=True):
        play(log, happening, None if seed is None else Random(seed))
    one, two, three = (log.log for log in logs)
    assert one.newest == two.newest == three.newest
    assert records(one) == records(two) == records(three)
    assert one.epochs.starts == two.epochs.starts
    for log in logs:
        newest, epochs = log.log.newest, log.log.epochs.starts
        log.reopen()
        assert (log.log.newest, log.log.epochs.starts) == (newest, epochs)
        log.log.close()


@given(
    before=events,
    after=events,
    bytes_max=st.integers(1, 2000),
    wide=st.booleans(),
    seed=st.integers(),
)
@settings(deadline=None, max_examples=60)
def test_frames_that_travel_from_any_serial_on_make_an_equal_log(
    before: Events, after: Events, bytes_max: int, wide: bool, seed: int
) -> None:
    leader = Replica()
    follower = Replica(b"\6", WIDE if wide else SMALL)
    play(leader, before, Random(seed))
    made = follower.refilled_from(leader)
    assert (made.identity, made.tag) == (leader.log.identity, leader.log.tag)
    assert made.incarnation != leader.log.form.incarnation
    play(leader, after, Random(seed + 1))
    follower.follow(leader, bytes_max=bytes_max)
    assert follower.log.newest == leader.log.newest
    for log in (follower, leader):
        log.reopen()
    assert follower.log.newest == leader.log.newest
    assert records(follower.log) == records(leader.log)
    for topic, kept in leader.topics.items():
        assert list(follower.payloads(topic).values()) == kept
    assert list(follower.opened.replay) == list(leader.opened.replay)


@given(happening=events, seed=st.integers(), place=st.floats(0, 1, exclude_max=True))
@settings(deadline=None, max_examples=150)
def test_frames_with_any_flipped_bit_are_refused_and_change_nothing(
    happening: Events, seed: int, place: float
) -> None:
    leader, follower = Replica(), Replica(b"\6")
    follower.refilled_from(leader)
    play(leader, happening, Random(seed))
    run = leader.log.frames_after(0, 1 << 20)
    assert run is not None
    newest = follower.log.newest
    bad = bytearray(run.frames)
    bad[int(place * len(bad))] ^= 1 << Random(seed).randrange(8)
    with pytest.raises(FramesRefused):
        follower.take(bytes(bad))
    assert follower.log.newest == newest
    assert follower.log.take_group() is None
    assert follower.take(run.frames) == run.last.serial


@given(happening=events, more=events, seed=st.integers(), place=st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_a_log_cut_above_any_serial_goes_on_from_there(
    happening: Events, more: Events, seed: int, place: float
) -> None:
    leader, follower = Replica(), Replica(b"\6")
    follower.refilled_from(leader)
    play(leader, happening, Random(seed))
    follower.follow(leader)
    serial = round(place * leader.log.last_serial)
    kept = records(leader.log)[:serial]
    follower.log.close()
    follower.open(cut_to=serial)
    assert follower.log.last_serial == serial
    assert bool(follower.opened.report.cut) == (serial < leader.log.last_serial)
    assert records(follower.log) == kept
    follower.reopen()  # and once more without: it stays so
    assert records(follower.log) == kept
    play(follower, [("epoch", leader.log.newest.leader_epoch + 1, 0), *more], Random(seed))
    newest = follower.log.newest
    follower.reopen()
    assert follower.log.newest == newest
    leader.log.close()
    leader.open(cut_to=serial)
    leader.follow(follower, bytes_max=900)
    assert leader.log.newest == newest
    assert records(leader.log) == records(follower.log)
