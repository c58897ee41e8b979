"""Simulated applications that subscribe and unsubscribe, by name and by pattern, or delete a topic.

Law: each says of every topic what it knows: a pattern is as good as the names of all topics it
stands for, made already or not, since a topic that is made later is included from its first
message. Where something else that was asked for may hold a topic, nothing is sure.
"""

from oncemq.audit import facts as saw
from oncemq.client.verbs import messages
from oncemq.protocol.patterns import is_pattern
from simulator.actors.calls import Work, carry_out, until_there_is_room
from simulator.actors.client import Process
from simulator.clock import MILLISECOND

PAUSE = 200 * MILLISECOND  # before a server whose disk is full is asked again


def subscribe(process: Process, asked: str, where: str) -> None:
    """Subscribe to a topic or a pattern, from now on or from the earliest."""
    process.begin("member", _subscribe(process, asked, where))


def subscribe_in_the_end(process: Process, asked: str) -> None:
    """Subscribe from now on; refused for want of room, it asks again until there is some."""
    work = until_there_is_room(
        lambda: _subscribe(process, asked, "new"), lambda: process.hold(PAUSE)
    )
    process.begin("member", work)


def unsubscribe(process: Process, asked: str) -> None:
    """Unsubscribe from it."""
    process.begin("member", _unsubscribe(process, asked))


def delete(process: Process, topic: str) -> None:
    """Delete a topic, whoever subscribes to it."""
    process.begin("member", _delete(process, topic))


def _subscribe(process: Process, asked: str, where: str) -> Work[None]:
    name, seen, interests = process.client.name, process.history.seen, process.client.interests
    topics = interests.covered(asked)
    begun = process.moment()
    seen.extend(saw.Joining(name, topic, where != "new", begun) for topic in topics)
    interests.begin(asked)
    yield from carry_out(messages.subscribe(process.engine, asked, where))
    interests.confirmed(asked)
    made = above = 0
    if is_pattern(asked):  # what it makes is made after it, and not told
        process.world.tell("pattern subscribed")
        above = process.engine.subscriber.patterns[asked]
    else:
        made = process.engine.subscriber.cursors.subscription(asked) or 0
        interests.left.discard(asked)
    done = process.moment()
    for topic in topics:
        if topic not in interests.left:
            alone = not interests.held(topic, beside=asked, surely=False)
            lowest = above if alone else 0
            seen.append(saw.Joined(name, topic, made, process.number, begun, done, lowest))


def _unsubscribe(process: Process, asked: str) -> Work[None]:
    name, seen, interests = process.client.name, process.history.seen, process.client.interests
    by_pattern = is_pattern(asked)
    topics = interests.covered(asked)
    if by_pattern:
        topics = [each for each in topics if not interests.held(each, beside=asked, surely=True)]
    begun = process.moment()
    seen.extend(saw.Leaving(name, topic, begun) for topic in topics)
    interests.doubt(asked)
    if not by_pattern and interests.held(asked, beside=asked, surely=False):
        interests.leave(asked)  # from now on: its answer may be lost
    known = asked in process.engine.subscriber.patterns
    ended = yield from carry_out(messages.unsubscribe(process.engine, asked))
    interests.ended(asked, surely=ended or known)
    if by_pattern:
        process.world.tell("pattern left")
    done = process.moment()
    for topic in topics:
        held = interests.held(topic, beside=asked, surely=False)
        if by_pattern and held:
            continue  # it has ended, or another pattern has it
        seen.append(saw.Left(name, topic, done, begun))
        interests.left.discard(topic)
        if held:  # by a pattern: it stays left, unless it is made only now
            interests.leave(topic)
            seen.append(saw.Joining(name, topic, True, process.moment()))


def _delete(process: Process, topic: str) -> Work[None]:
    history, engine = process.history, process.engine
    shown = yield from carry_out(messages.topic(engine, topic))
    topic_id = shown.topic.topic_id
    life, moment = history.lives.name(topic, topic_id), process.moment()
    history.lives.end(life, moment)
    history.seen.extend(saw.Leaving(client, life, moment) for client in process.world.clients)
    yield from carry_out(messages.delete_this_topic(engine, topic, topic_id))
    process.world.tell("topic deleted")
