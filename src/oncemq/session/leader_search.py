"""Which server a client asks next: the leader as far as anybody knows, else each in its turn.

How it works. A client is given the addresses of some servers of a cluster. One of them leads, or a
server whose address the client was not given; the others refuse each request with `not_leader`, and
name the leader and its epoch where they know it. A search lasts from the first such refusal (or
the first server that gives no answer) to the next answer:

1. A leader that is named is asked next: once in a search, and again when a higher epoch names it.
2. Else the next one in the ring is asked, rather one that was not asked yet in this search: the
   ring is the addresses that were given, and the leader's.
3. As long as not all were asked, without a pause but the short one after a refusal without a hint.
   After that each pause is up to twice as long as the one before, up to half a second. A leader of
   a higher epoch is asked after a short pause all the same: that is news.

Who was named as leader, or answered last, has the usual time for its answers. Who is only tried has
less, and everybody has less to let the client connect: both grow with each round, since a server
may be far away. A client that knows of one server only has all the time.

Laws: a leader of a lower epoch than one that was named before is passed over; so two servers that
name each other cannot keep a client. What is known is forgotten after many tries in vain: a
cluster that was made anew begins with low epochs. Time and chance are arguments.
"""

from collections.abc import Callable, Sequence

from oncemq.protocol.names import Micros
from oncemq.protocol.replies import RefusedReply
from oncemq.session.inflight import FIRST_WAIT

SHORT_PAUSE = 20_000  # microseconds
LONGEST_PAUSE = 500_000
TRY_MICROS = 300_000  # to connect, and to answer first, in the first round
TRY_GROWS = 150_000  # so much longer in each round after it
LONGEST_TRY = 1_500_000
BELIEVED_TRIES = 8  # in vain, after which what is known of the leader is forgotten


class LeaderSearch:
    """What one client knows of its servers."""

    def __init__(self, first: str, chance: Callable[[], float]) -> None:
        self.address = first  # of the one that is asked
        self.is_named = False  # somebody said that this one is the leader
        self.leader = ""  # of the highest epoch that was heard of; empty: not known
        self.leader_epoch = 0
        self.was_refused = False  # in this search somebody said that it is not the leader
        self.outcomes: dict[str, str] = {}  # of this search: who was asked, and what came of it
        self._chance = chance
        self._found = ""  # who answered last
        self._tries = 0  # servers asked in this search, beyond the first
        self._asked_since = Micros(0)

    def ring(self, servers: Sequence[str]) -> list[str]:
        """Those to be asked in turn: the ones that were given, and the leader."""
        found = list(dict.fromkeys(servers))
        return found if not self.leader or self.leader in found else [*found, self.leader]

    def connect_micros(self, servers: Sequence[str]) -> int:
        """How long the one that is asked has to let the client connect."""
        if self.ring(servers) == [self.address]:
            return LONGEST_TRY  # there is no other
        return min(TRY_MICROS + TRY_GROWS * self._round(servers), LONGEST_TRY)

    def answer_micros(self, servers: Sequence[str]) -> int:
        """How long it has for the first answer, once it is connected."""
        if self.is_named or self.address == self._found:
            return FIRST_WAIT
        return min(self.connect_micros(servers), FIRST_WAIT)

    # What happens

    def answered(self) -> None:
        """The one that is asked leads: it has answered what only a leader answers."""
        self.outcomes.clear()
        self.was_refused = False
        self._tries = 0
        self._found = self.address

    def refused(self, reply: RefusedReply, servers: Sequence[str], now: Micros) -> Micros:
        """It is not the leader: when to ask another."""
        self.was_refused = True
        self.outcomes[self.address] = "is not the leader" if reply.leader else reply.detail
        is_news = self._heard(reply)
        pause = self._pause(self._tries - len(self.ring(servers)) + 1)
        if not self._is_leader_to_ask:
            return max(Micros(now + self._pause(0)), Micros(self._asked_since + pause))
        if is_news and pause:
            pause = self._pause(0)
        return max(now, Micros(self._asked_since + pause))

    def failed(self, outcome: str, servers: Sequence[str], now: Micros) -> Micros:
        """It gives no answer, or no connection: when to ask another."""
        self.outcomes[self.address] = outcome
        pause = self._pause(self._tries - len(self.ring(servers)) + 1)
        return max(now, Micros(self._asked_since + pause))

    def go_on(self, servers: Sequence[str], now: Micros) -> str:
        """Ask another one from now on: its address."""
        self.is_named = self._is_leader_to_ask
        if self.is_named:
            self.address = self.leader
        else:
            ring = self.ring(servers)
            place = ring.index(self.address) + 1 if self.address in ring else 0
            in_turn = [*ring[place:], *ring[:place]]
            self.address = next((each for each in in_turn if each not in self.outcomes), in_turn[0])
        self._tries += 1
        self._asked_since = now
        if self._tries % max(BELIEVED_TRIES, 2 * len(servers)) == 0:
            self.leader, self.leader_epoch = "", 0
        return self.address

    # Inside

    @property
    def _is_leader_to_ask(self) -> bool:
        return bool(self.leader) and self.leader not in self.outcomes

    def _heard(self, reply: RefusedReply) -> bool:
        """Take over what a refusal says of the leader; whether it is one of a higher epoch."""
        is_higher = reply.leader_epoch > self.leader_epoch
        if is_higher or (reply.leader_epoch == self.leader_epoch and not self.leader):
            self.leader, self.leader_epoch = reply.leader, reply.leader_epoch
        if is_higher and self.leader != self.address:
            self.outcomes.pop(self.leader, None)
        return is_higher

    def _round(self, servers: Sequence[str]) -> int:
        return self._tries // len(self.ring(servers))

    def _pause(self, step: int) -> int:
        """Half of it is left to chance: clients of a leader that stepped down come one by one."""
        if step < 0:
            return 0
        pause = min(SHORT_PAUSE << min(step, 10), LONGEST_PAUSE)
        return pause - int(self._chance() * pause / 2)
