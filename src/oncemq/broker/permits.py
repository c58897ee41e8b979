"""Which resume of a producer on a topic is the newest, and which puts were sent after it.

Every resume is answered with a permit, and a put names the one it was sent under. Laws: once a
resume is answered, no put that was sent before it is stored: so what it did not find never will
be, its refusal may be believed, and its numbers may be used again. A resume that is repeated gets
the same permit: however slow the answers are, the first one counts. Deleting a topic voids the
puts that do not say which topic of its name they are for: a late copy of one that the deleted
topic held is not stored in a topic that is made anew.

In memory only: what was under way to an earlier start of the server was lost with it. Permits may
be forgotten, never mixed up: after that a producer that has none here is asked to resume first.
A new leader of a shard begins as one who has forgotten all: what was refused by the leader before
it may still come, and to whom it was given a permit is not known here.
"""

from collections import OrderedDict

from oncemq.protocol.names import LeaderEpoch, Micros, ProducerId
from oncemq.protocol.requests import Resume

OF_LEADERS = 1 << 62  # permits from here on are of leaders; each epoch has its own
EPOCH_PERMITS = 1 << 32
KEPT = 100_000  # newest permits, about 30 MB; beyond, a put may cost one resume more

Key = tuple[str, ProducerId]  # the topic's name: it may be another topic by then


class Permits:
    """The newest permit of each producer on each topic."""

    def __init__(self) -> None:
        self._newest: OrderedDict[Key, tuple[int, Resume]] = OrderedDict()  # and for which resume
        self._deleted: OrderedDict[str, int] = OrderedDict()  # the last permit before each deletion
        self._deleted_before = -1  # the same, of all deletions that are forgotten
        self._last = 0
        self._has_forgotten = False

    def begin(self, now: Micros, leader_epoch: LeaderEpoch) -> None:
        """The server starts, or leads: its permits are not those of an earlier start or leader."""
        self._last = int(now)
        if leader_epoch:
            self._last = OF_LEADERS + leader_epoch * EPOCH_PERMITS
            self._has_forgotten = True

    def issue(self, resume: Resume) -> int:
        """A producer resumes: whatever it sent under another permit is void."""
        key = resume.topic, resume.producer
        newest = self._newest.get(key)
        if newest is not None:
            permit, known = newest
            same_start = (known.client, known.client_epoch) == (resume.client, resume.client_epoch)
            if same_start and 0 < resume.number <= known.number:
                return permit  # a copy, of that one or of one before
        self._last += 1
        self._newest[key] = self._last, resume
        self._newest.move_to_end(key)
        if len(self._newest) > KEPT:
            self._newest.popitem(last=False)
            self._has_forgotten = True
        return self._last

    def topic_deleted(self, topic: str) -> None:
        """What was sent for the topic that had this name, whichever it was, is void."""
        self._deleted[topic] = self._last
        self._deleted.move_to_end(topic)
        if len(self._deleted) > KEPT:
            self._deleted_before = max(self._deleted_before, self._deleted.popitem(last=False)[1])

    def holds(self, topic: str, producer: ProducerId, permit: int, *, named: bool) -> bool:
        """Whether a put that was sent under this permit (0: none) may be stored.

        `named`: it says which of the topics that had the name it is for.
        """
        if not named and permit <= self._deleted.get(topic, self._deleted_before):
            return False
        newest = self._newest.get((topic, producer))
        return not self._has_forgotten if newest is None else permit == newest[0]
