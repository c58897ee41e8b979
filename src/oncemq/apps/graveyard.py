"""The dead letters of a server: which are open, and what becomes of them.

Law: a letter goes back to its topic once, and is noted as done once, whoever is killed half-way
and begins again: both are puts under the letter's own key.
"""

from collections.abc import Iterator

from oncemq.apps import letters
from oncemq.apps.blocking import keep_forever
from oncemq.apps.letters import DEAD, DONE, DROPPED, RETRIED, Letter
from oncemq.client.blocking import Client
from oncemq.client.values import Message
from oncemq.errors import InvalidRequest, NoSuchTopic, NotSubscribed, Refused

PAGE = 500


def dead_topics(client: Client, topic: str | None = None) -> list[str]:
    """Where to look: the dead letters of a topic (or that topic itself), or all there are."""
    there = {each.name for each in client.topics()}
    if topic is None:
        return sorted(name for name in there if name.endswith(DEAD))
    for name in (topic + DEAD, topic):
        if name in there:
            return [name]
    raise NoSuchTopic(f"there is no topic '{topic}{DEAD}', so '{topic}' has no dead letters")


def open_letters(client: Client, dead: str) -> list[Letter]:
    """The letters of which nothing became yet, oldest first."""
    found = (letters.read(each) for each in _all(client, dead))
    return letters.still_open((each for each in found if each), _done(client, dead))


def find(client: Client, name: str) -> Letter:
    """The letter with this id (`orders.dead@7`), open or not."""
    dead, offset = parse(name)
    message = next(iter(client.read(dead, offset, limit=1)), None)
    letter = letters.read(message) if message is not None and message.offset == offset else None
    if letter is None:
        raise Refused(f"{name} is no dead letter; `once dead list` shows them", code="no_letter")
    return letter


def find_open(client: Client, name: str) -> Letter:
    """The letter with this id; refused when it is done with."""
    letter = find(client, name)
    done = [each for each in _done(client, parse(name)[0]) if each.key == letter.id.encode()]
    if done:
        raise Refused(
            f"{name} was {done[0].payload.decode()} at {done[0].timestamp:%Y-%m-%d %H:%M:%S} UTC",
            code="letter_done",
        )
    return letter


def parse(name: str) -> tuple[str, int]:
    """Topic and offset of `orders.dead@7`."""
    topic, _, offset = name.rpartition("@")
    if not topic or not offset.isdecimal():
        raise InvalidRequest(f"{name!r} is not the name of a letter, as orders{DEAD}@7 is")
    return topic, int(offset)


def retry(client: Client, letter: Letter, *, for_all: bool = False) -> None:
    """Put the message back to its topic, for the handler that failed (or for every subscriber)."""
    handler = None if for_all else letter.handler
    if not client.subscriptions(letter.topic, handler):
        who = "nobody" if for_all else f"handler {letter.handler}"
        raise NotSubscribed(
            f"{letter.id} stays: {who} {'subscribes' if for_all else 'is not subscribed'} to "
            f"'{letter.topic}'"
        )
    headers = letter.headers if for_all else letters.retry_headers(letter)
    client.put(
        letter.topic,
        letter.payload,
        key=letter.key,
        headers=headers,
        idempotency_key=letters.retry_key(letter),
    )
    _note(client, letter, RETRIED)


def drop(client: Client, letter: Letter) -> None:
    """Nothing more is to be done about it."""
    _note(client, letter, DROPPED)


def _note(client: Client, letter: Letter, what: str) -> None:
    done = parse(letter.id)[0] + DONE
    keep_forever(client, done)
    client.put(
        done, what.encode(), key=letter.id.encode(), idempotency_key=letters.retry_key(letter)
    )


def _done(client: Client, dead: str) -> Iterator[Message]:
    try:
        yield from _all(client, dead + DONE)
    except NoSuchTopic:
        return


def _all(client: Client, topic: str) -> Iterator[Message]:
    info = client.topic(topic).topic
    offset = int(info.low)
    while offset < info.end:
        messages = client.read(topic, offset, limit=PAGE)
        if not messages:
            return
        yield from messages
        offset = messages[-1].offset + 1
