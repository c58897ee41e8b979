"""The dead letters of a server: which are open, and what becomes of them.

Law: a letter is closed once, whoever is killed half-way and begins again, and however many close
letters at once: the message that goes back and the note are one commit, numbered by the notes
that were looked at before.
"""

from collections.abc import Iterator

from oncemq.apps import dead_letters
from oncemq.apps.blocking import drive
from oncemq.apps.dead_letters import DEAD, DONE, DROPPED, RETRIED, DeadLetter
from oncemq.apps.hands import keep_forever
from oncemq.client.blocking.client import Client
from oncemq.client.engine.stage_puts import StageToken
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


def open_letters(client: Client, dead: str) -> list[DeadLetter]:
    """The letters of which nothing became yet, oldest first."""
    notes = _notes(client, dead + DONE)
    found = (dead_letters.read(each) for each in _all(client, dead))
    return [each for each in found if each is not None and notes.of(each) is None]


def find(client: Client, name: str) -> DeadLetter:
    """The letter with this id (`orders.dead@7`), open or not."""
    dead, offset = parse(name)
    message = next(iter(client.read(dead, offset, limit=1)), None)
    letter = (
        dead_letters.read(message) if message is not None and message.offset == offset else None
    )
    if letter is None:
        raise Refused(f"{name} is no dead letter; `once dead list` shows them", code="no_letter")
    return letter


def find_open(client: Client, name: str) -> DeadLetter:
    """The letter with this id; refused when it is done with."""
    letter = find(client, name)
    done = _notes(client, _done_topic(letter)).of(letter)
    if done is not None:
        at = f"{done.timestamp:%Y-%m-%d %H:%M:%S} UTC"
        raise Refused(f"{name} was {done.payload.decode()} at {at}", code="letter_done")
    return letter


def parse(name: str) -> tuple[str, int]:
    """Topic and offset of `orders.dead@7`."""
    topic, _, offset = name.rpartition("@")
    if not topic or not offset.isdecimal():
        raise InvalidRequest(f"{name!r} is not the name of a letter, as orders{DEAD}@7 is")
    return topic, int(offset)


def retry(client: Client, letter: DeadLetter, *, for_all: bool = False) -> bool:
    """Put the message back to its topic, for the handler that failed (or for every subscriber).

    False when somebody else was quicker to close the letter.
    """
    handler = None if for_all else letter.handler
    if not client.subscriptions(letter.topic, handler):
        who = "nobody" if for_all else f"handler {letter.handler}"
        raise NotSubscribed(
            f"{letter.id} stays: {who} {'subscribes' if for_all else 'is not subscribed'} to "
            f"'{letter.topic}'"
        )
    headers = letter.headers if for_all else dead_letters.retry_headers(letter)
    stage = client.stage()
    stage.put_many([letter.payload], keys=[letter.key], headers=[headers])
    return _close(client, letter, RETRIED, [(letter.topic, stage.close())])


def drop(client: Client, letter: DeadLetter) -> bool:
    """Nothing more is to be done about it. False when somebody else was quicker to close it."""
    return _close(client, letter, DROPPED, [])


class _Notes:
    """What became of the letters of a topic, as far as it can be read."""

    def __init__(self, messages: list[Message], count: int) -> None:
        self.count = count  # of all that were ever written
        self._by_letter = {each.key: each for each in messages}

    def of(self, letter: DeadLetter) -> Message | None:
        return self._by_letter.get(letter.name)


def _close(
    client: Client, letter: DeadLetter, what: str, targets: list[tuple[str, StageToken]]
) -> bool:
    """One commit: what is published, and the note. Its number is the count of notes that were
    looked at: who looked at older ones is told `already`, and looks again."""
    done = _done_topic(letter)
    drive(keep_forever(client, done))
    owner = f"once dead {client.topic(done).topic.topic_id}"
    stage = client.stage()
    stage.put_many([what.encode()], keys=[letter.name])
    targets = [*targets, (done, stage.close())]
    while (notes := _notes(client, done)).of(letter) is None:
        if not client.commit(owner, notes.count + 1, targets).already:
            return True
    for _, token in targets:
        client.drop_stage(token)
    return False


def _done_topic(letter: DeadLetter) -> str:
    return parse(letter.id)[0] + DONE


def _notes(client: Client, done: str) -> _Notes:
    try:
        low = int(client.topic(done).topic.low)
        messages = list(_all(client, done))
    except NoSuchTopic:
        return _Notes([], 0)
    return _Notes(messages, messages[-1].offset + 1 if messages else low)


def _all(client: Client, topic: str) -> Iterator[Message]:
    info = client.topic(topic).topic
    offset = int(info.low)
    while offset < info.end:
        messages = client.read(topic, offset, limit=PAGE)
        if not messages:
            return
        yield from messages
        offset = messages[-1].offset + 1
