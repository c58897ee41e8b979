"""Laws of the ZMTP state machine: whatever the cuts, whatever the bytes, whatever is announced."""

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from oncemq.zmtp import commands
from oncemq.zmtp.connection import (
    GROWTH_BYTES,
    LANDING_BYTES,
    Heard,
    Opened,
    Phase,
    SubjectChange,
    ZmtpConnection,
)
from oncemq.zmtp.limits import WireLimits
from oncemq.zmtp.mechanism import PeerFacts
from oncemq.zmtp.messages import encode, subscription
from tests.harness.zmtp import SMALL, cut, frame, give, hello, opened, owed, ping, ready, told

CUTS = st.lists(st.integers(0, 500), max_size=12) | st.lists(st.integers(0, 300_000), max_size=12)
SIZES = st.one_of(
    st.integers(0, 300),
    st.sampled_from([4_095, 4_096, 4_097, LANDING_BYTES, LANDING_BYTES + 20, 2 * GROWTH_BYTES]),
    st.integers(0, 200_000),
)
BODIES = st.binary(max_size=40) | st.builds(
    lambda size, byte: bytes((byte,)) * size, SIZES, st.integers(0, 255)
)
MESSAGES = st.lists(BODIES, min_size=1, max_size=5).filter(
    lambda frames: sum(map(len, frames)) <= SMALL.message_bytes_max
)
SUBJECTS = st.binary(max_size=250)
SOCKETS = st.sampled_from(
    [(b"ROUTER", b"DEALER"), (b"DEALER", b"ROUTER"), (b"XPUB", b"SUB"), (b"SUB", b"XPUB")]
)


def joined(frames: list[bytes]) -> bytes:
    return b"".join(bytes(each) for each in encode(frames))


@st.composite
def traffic(draw: st.DrawFn) -> tuple[bytes, list[object], bytes]:
    """What a subscriber says, the events it means, and what it is answered."""
    said, meant, answered = bytearray(), list[object](), bytearray()
    for _ in range(draw(st.integers(0, 6))):
        match draw(st.sampled_from(["message", "ping", "subject", "other"])):
            case "message":
                frames = draw(MESSAGES)
                said += joined(frames)
                if len(frames) == 1 and frames[0][:1] in (b"\0", b"\1"):
                    meant.append(SubjectChange(frames[0][0] == 1, frames[0][1:]))
                else:
                    meant.append(frames)
            case "ping":
                context = draw(st.binary(max_size=16))
                said += ping(context, draw(st.integers(0, 65_535)))
                meant.append(Heard(b"PING"))
                answered += commands.command(b"PONG", context)
            case "subject":
                change = SubjectChange(draw(st.booleans()), draw(SUBJECTS))
                minor = draw(st.integers(0, 2))
                said += subscription(change.subject, joined=change.joined, minor=minor)
                meant.append(change)
            case _:
                said += commands.command(b"OTHER", draw(st.binary(max_size=290)))
                meant.append(Heard(b"OTHER"))
    return bytes(said), meant, bytes(answered)


@given(traffic(), CUTS)
def test_whatever_the_cuts_the_same_is_heard_and_answered(
    conversation: tuple[bytes, list[object], bytes], cuts: list[int]
) -> None:
    said, meant, answered = conversation
    connection = ZmtpConnection(b"XPUB", SMALL)
    owed(connection)
    events, why = told(connection, cut(hello() + ready(b"SUB") + said, cuts))
    assert (events, why) == ([Opened(PeerFacts(b"SUB"), 1), *meant], "")
    assert owed(connection) == ready(b"XPUB") + answered
    assert not connection.is_partial
    assert connection.held_bytes == 0


@given(traffic())
def test_cut_at_every_byte_the_same_is_heard(
    conversation: tuple[bytes, list[object], bytes],
) -> None:
    said, meant, _ = conversation
    said = (hello() + ready(b"SUB") + said)[:2_000]
    whole, why = told(ZmtpConnection(b"XPUB", SMALL), [said])
    assert why == ""
    assert whole == [Opened(PeerFacts(b"SUB"), 1), *meant][: len(whole)]
    single = [said[at : at + 1] for at in range(len(said))]
    assert told(ZmtpConnection(b"XPUB", SMALL), single) == (whole, "")


@given(MESSAGES, CUTS)
def test_what_is_encoded_is_parsed(frames: list[bytes], cuts: list[int]) -> None:
    assert told(opened(), cut(joined(frames), cuts)) == ([frames], "")


@st.composite
def nearly_zmtp(draw: st.DrawFn) -> bytes:
    """Bytes that are ZMTP for a while, with some of them changed."""
    parts = draw(
        st.lists(
            st.one_of(
                st.just(hello()),
                st.sampled_from(
                    [ready(b"DEALER"), ready(b"SUB"), ready(b"REQ", {b"Identity": b"i"})]
                ),
                st.binary(max_size=30),
                st.builds(frame, st.binary(max_size=300), more=st.booleans()),
                st.builds(ping, st.binary(max_size=18)),
                st.builds(commands.command, st.binary(max_size=12), st.binary(max_size=20)),
                st.builds(
                    struct.Struct(">BQ").pack,
                    st.integers(0, 255),
                    st.integers(0, 300) | st.integers(0, 2**64 - 1),
                ),
            ),
            max_size=6,
        )
    )
    data = bytearray((hello() + ready(b"DEALER") if draw(st.booleans()) else b"") + b"".join(parts))
    for place, byte in draw(
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)
    ):
        if place < len(data):
            data[place] = byte
    return bytes(data)


@given(SOCKETS, nearly_zmtp(), CUTS, CUTS)
@example((b"XPUB", b"SUB"), hello() + ready(b"SUB") + b"\x00\x00", [], [105])
def test_any_bytes_give_events_or_one_refusal_whatever_the_cuts(
    sockets: tuple[bytes, bytes], data: bytes, some: list[int], others: list[int]
) -> None:
    outcomes = []
    for cuts in (some, others):
        connection = ZmtpConnection(sockets[0], SMALL)
        events, why = told(connection, cut(data, cuts))
        assert (connection.phase is Phase.ENDED) == bool(why)
        if why:
            assert told(connection, [data]) == ([], "")
            assert why.isprintable()
        outcomes.append((events, why, owed(connection)))
    assert outcomes[0] == outcomes[1]


@given(SOCKETS, nearly_zmtp(), CUTS)
def test_what_is_held_and_owed_is_bounded_by_what_came(
    sockets: tuple[bytes, bytes], data: bytes, cuts: list[int]
) -> None:
    connection = ZmtpConnection(sockets[0], WireLimits())
    came, said = 0, len(owed(connection))
    for piece in cut(data, cuts):
        came += len(piece)
        _, why = told(connection, [piece])
        assert connection.held_bytes <= 2 * came + GROWTH_BYTES
        said += len(owed(connection))
        assert said <= 64 + 100 + 300 + came
        if why:
            assert connection.held_bytes == 0
            return


# ------------------------------------------------------------------ two ends of one pipe


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[int, list[bytes]]]:
    """Messages, each by one of the two ends."""
    sizes = st.binary(max_size=300) | st.builds(bytes, st.integers(0, 150_000))
    messages = st.lists(sizes, min_size=1, max_size=4)
    return draw(st.lists(st.tuples(st.integers(0, 1), messages), max_size=6))


@given(
    st.sampled_from([(b"ROUTER", b"DEALER"), (b"DEALER", b"DEALER")]),
    conversations(),
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 100_000) | st.integers(1, 40)), max_size=40
    ),
)
def test_two_ends_hear_what_the_other_said_wherever_the_pipe_cuts(
    sockets: tuple[bytes, bytes],
    messages: list[tuple[int, list[bytes]]],
    steps: list[tuple[int, int]],
) -> None:
    ends = [ZmtpConnection(socket, WireLimits()) for socket in sockets]
    pipes = [bytearray(), bytearray()]  # towards each end
    waiting: list[list[list[bytes]]] = [
        [frames for who, frames in messages if who == end] for end in (0, 1)
    ]
    heard: list[list[object]] = [[], []]

    def carry(to: int, count: int) -> None:
        """Some bytes arrive; what is owed, and a ping and a message for it, leave."""
        piece = bytes(pipes[to][:count])
        del pipes[to][:count]
        for event in give(ends[to], piece):
            if not isinstance(event, Heard):
                heard[to].append(event)
        pipes[1 - to] += owed(ends[to])
        if ends[to].phase is Phase.OPEN and waiting[to]:
            pipes[1 - to] += ping(b"?") + joined(waiting[to].pop(0))

    for to, count in [(0, 0), (1, 0), *steps]:
        carry(to, count)
    while any(pipes) or any(waiting):
        for to in (0, 1):
            carry(to, len(pipes[to]))
    for to in (0, 1):
        opening, *rest = heard[to]
        assert opening == Opened(PeerFacts(sockets[1 - to]), minor=1)
        assert rest == [frames for who, frames in messages if who == 1 - to]
        assert not ends[to].is_partial
