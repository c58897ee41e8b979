"""Law: whatever the feed loses, repeats or delays, each message is handed out once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from oncemq.protocol.names import Offset, TopicId
from oncemq.protocol.replies import ListenedAnswer
from oncemq.session import listener_order as module
from oncemq.session.listener_order import ListenerOrder
from oncemq.session.subscriber import Subscriber
from tests.harness.messages import ID, Batch, Note

TOPIC = TopicId(1)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "put", "push", "push", "announce", "pull", "answer", "take", "back"]
        ),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 12))
def test_each_message_is_handed_out_once_and_in_order(steps, room: int) -> None:
    usual = module.HELD_BYTES, module.EARLY_BYTES
    module.HELD_BYTES, module.EARLY_BYTES = 2 * room, room
    try:
        live_through(steps)
    finally:
        module.HELD_BYTES, module.EARLY_BYTES = usual


def live_through(steps: list[tuple[str, int]]) -> None:
    subscriber: Subscriber[Note] = Subscriber()
    live: ListenerOrder[Note] = ListenerOrder(subscriber)
    live.joined([ListenedAnswer("a", TOPIC, ID, Offset(0), Offset(0))])
    ends = [0]  # of the batches stored
    given_out: list[int] = []
    pulled: range | None = None

    def pull() -> range:
        subscriber.prefetched.want("a", 3)
        place = subscriber.prefetched.place("a")
        return range(place, min(ends[-1], place + 3))

    def answer(offsets: range) -> None:
        subscriber.came("a", [Batch("a", offsets)] if offsets else [], more=offsets.stop < ends[-1])
        live.pulled("a")

    def take(limit: int) -> int:
        taken = live.take(limit)
        subscriber.move(subscriber.cursors.moves(taken))
        given_out.extend(note.offset for note in taken)
        return len(taken)

    for what, number in steps:
        if what == "put":
            ends.append(ends[-1] + number + 1)
        elif what == "push" and len(ends) > 1:  # any of the last ones, in any order
            place = max(1, len(ends) - 1 - number)
            live.pushed(
                TOPIC, Offset(ends[place]), [Batch("a", range(ends[place - 1], ends[place]))]
            )
        elif what == "announce":
            live.pushed(TOPIC, Offset(ends[-1]), [])
        elif what == "pull" and live.lacking():
            pulled = pull()
        elif what == "answer" and pulled is not None:
            answer(pulled)
            pulled = None
        elif what == "take":
            take(number + 1)
        elif what == "back":
            live.take(number + 1)
            live.put_back()
    # The server's nudge ends every silence.
    live.pushed(TOPIC, Offset(ends[-1]), [])
    while take(4) or live.lacking():
        if live.lacking():
            answer(pull())
    assert given_out == list(range(ends[-1]))
