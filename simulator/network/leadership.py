"""Which address leads in a simulated cluster, and what the servers at the other ones say.

There is one log, and one server process that has it, as if all replicas were equal at all times:
what differs is where it answers. At every other address a server follows, and refuses. So a client
can be judged by what it does when leaders change; that replicas may differ is not shown here.
"""

from collections.abc import Sequence

from oncemq.protocol.replies import RefusedReply, not_leader
from oncemq.protocol.step import Body
from oncemq.wire import codec

ADDRESSES = ("one", "two", "three")
HINTS = ("leader", "none", "itself", "older")  # what one that follows names
FIRST_EPOCH = 10  # there were leaders before


class Leadership:
    """Who leads, in which epoch, and whom the others name."""

    def __init__(self) -> None:
        self.leader = ADDRESSES[0]  # empty: nobody, for now
        self.epoch = FIRST_EPOCH
        self.hints: dict[str, str] = dict.fromkeys(ADDRESSES, "leader")
        self.tells = False  # the answers that one gives after it led are refusals
        self.refusals = 0

    def step_down(self, hints: dict[str, str], *, tells: bool) -> None:
        """Nobody leads, and another epoch begins."""
        self.leader, self.hints, self.tells = "", hints, tells
        self.epoch += 1

    def refusal(self, address: str, frames: Sequence[Body]) -> list[Body]:
        """What the one at an address answers to a request, or says instead of an answer."""
        self.refusals += 1
        token = int.from_bytes(bytes(frames[0])[4:12])
        return codec.encode_reply(token, self._said_at(address))

    def _said_at(self, address: str) -> RefusedReply:
        match self.hints[address]:
            case "leader":
                return not_leader(self.leader, self.epoch)
            case "itself":
                return not_leader(address, self.epoch)
            case "older":
                others = [each for each in ADDRESSES if each not in (address, self.leader)]
                return not_leader(others[0], self.epoch - 1 - ADDRESSES.index(address))
            case _:
                return not_leader("", self.epoch)
