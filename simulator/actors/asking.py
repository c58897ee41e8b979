"""What an application asks that changes nothing: where a topic ends, as whoever leads knows it.

Law: what was acknowledged to anybody before it was asked is in the answer. A leader that was
replaced, and does not know it, must not give one.
"""

from oncemq.client.verbs import messages
from simulator.actors.calls import Work, carry_out
from simulator.actors.client import Process
from simulator.history.history import History


def ask_for_the_end(process: Process, topic: str) -> None:
    """Look at a topic that nobody deletes."""
    process.begin("ask", _ask(process, topic))


def _ask(process: Process, topic: str) -> Work[None]:
    known = _acknowledged(process.history, topic)
    shown = yield from carry_out(messages.topic(process.engine, topic))
    if shown.topic.end < known:
        process.history.trouble(
            f"stale: {process.client.name} was told that {topic} ends at {shown.topic.end}, after "
            f"{topic}@{known - 1} was acknowledged"
        )


def _acknowledged(history: History, topic: str) -> int:
    ends = [
        each.first_offset + each.count
        for each in history.puts.values()
        if each.topic == topic and each.stored and each.first_offset is not None
    ]
    return max(ends, default=0)
