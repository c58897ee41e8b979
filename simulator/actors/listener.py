"""What an application does that listens, in simulated time: `Client.listen`, some of it."""

from oncemq.client.verbs import messages as verbs
from simulator.actors.calls import Work, carry_out
from simulator.actors.client import Process
from simulator.clock import MILLISECOND, SECOND

SILENCE_MS = 12_000  # after which a listener takes it that nothing is left: several nudges


def listen(
    process: Process, topics: tuple[str, ...], limit: int, wait_ms: int, hold_ms: int,
    *, fails: bool, leaves: bool,
) -> None:  # fmt: skip
    """Listen for some messages: settled one by one, or put back."""
    work = _listen(process, topics, limit, wait_ms, hold_ms, fails=fails, leaves=leaves)
    process.calls.begin("get", work, wait=(wait_ms + hold_ms) * MILLISECOND)
    process.wake()


def listen_to_the_end(process: Process, topics: tuple[str, ...]) -> None:
    """Until nothing came for so long that nothing is left."""
    process.calls.begin("get", _listen_to_the_end(process, topics), wait=20 * SECOND)
    process.wake()


def _listen(
    process: Process, topics: tuple[str, ...], limit: int, wait_ms: int, hold_ms: int,
    *, fails: bool, leaves: bool,
) -> Work[None]:  # fmt: skip
    listening, subscriber = process.engine.listening, process.engine.subscriber
    asked = process.moment()
    messages = yield from carry_out(listening.take(topics, limit, wait_ms))
    if hold_ms and fails:
        yield from process.hold(hold_ms * MILLISECOND)
    if fails:
        listening.put_back(topics)
    else:
        for message in filter(subscriber.cursors.has, messages):
            verbs.settle_one(process.engine, message)
            process.hand_out([message], asked)
            if hold_ms:  # it works on the first for so long, and asks for the next then
                yield from process.hold(hold_ms * MILLISECOND)
                asked, hold_ms = process.moment(), 0
    if leaves:
        listening.leave(topics)


def _listen_to_the_end(process: Process, topics: tuple[str, ...]) -> Work[None]:
    before = -1
    while before != process.seen:
        before = process.seen
        yield from _listen(process, topics, 500, SILENCE_MS, 0, fails=False, leaves=False)
    process.engine.listening.leave(topics)
