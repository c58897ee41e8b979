"""Generations of the log: branches of one tree, so each has a name of its own.

A log goes on from an earlier state when loss was accepted or a backup restored. One backup can be
restored twice, a damaged directory mended twice: which of two generations is the later one says
nothing about what both have in common. So a generation is a depth (how often the log was continued
on the way to it) in the upper bits, and a random name in the lower 24; the first is 1.

Laws: along one branch generations grow; two branches have no generation in common but those before
they parted; no epoch is granted in two generations. The log knows the generations that led to it,
the newest ones at least: whatever it does not know is taken for another branch's, of which nothing
is believed.
"""

from itertools import zip_longest

from oncemq.protocol.names import Epoch, Generation, Micros

FIRST = Generation(1)  # every log begins with it
UNKNOWN = Micros(0)  # moment
NAME_BITS = 24
KEPT = 64  # generations that a log knows to be its own, with the first

_DEPTH_MAX = (1 << 14) - 1  # that epochs have room for
_GRANT_BITS = 24  # epochs of one id in one generation


def continued(newest: int, random: int) -> Generation:
    """The generation of a log that goes on from a state whose newest one is this."""
    name = random & ((1 << NAME_BITS) - 1)
    return Generation((newest >> NAME_BITS) + 1 << NAME_BITS | name)


def depth(generation: int) -> int:
    """How often the log was continued on the way to it."""
    return generation >> NAME_BITS


def in_words(generation: int) -> str:
    """Short, for people: how many there were, and its name."""
    name = generation & ((1 << NAME_BITS) - 1)
    return f"{depth(generation) + 1}-{name:06x}" if depth(generation) else str(generation)


def epochs_above(generation: Generation) -> Epoch:
    """What is granted in a generation is above this, and so in no other branch of the log.

    Before generations had names (those below 2^24) epochs went on as they were.
    """
    name = generation & ((1 << NAME_BITS) - 1)
    if not depth(generation):
        return Epoch(0)
    return Epoch((min(depth(generation), _DEPTH_MAX) << NAME_BITS | name) << _GRANT_BITS)


class Generations:
    """Those that led to a log as it is, oldest first."""

    def __init__(self) -> None:
        self._own: tuple[Generation, ...] = (FIRST,)
        self._ended: dict[Generation, Micros] = {}  # the log's newest moment when one began

    @property
    def newest(self) -> Generation:
        """The one that the log is in."""
        return self._own[-1]

    def began(self, generation: Generation, ended: Micros = UNKNOWN) -> None:
        """The log went on from an earlier state; again, when a checkpoint knew it already.

        `ended`: the newest moment of that state.
        """
        if generation > self.newest:
            self._own = (FIRST, *(*self._own[1:], generation)[1 - KEPT :])
            self._ended[generation] = ended
            self._ended = {each: self._ended.get(each, UNKNOWN) for each in self._own[1:]}

    def has(self, generation: Generation) -> bool:
        """Whether this is a generation of the log's own, or of another branch (or long ago)."""
        return generation in self._own

    def ended_after(self, generation: Generation) -> Micros:
        """The log's newest moment when the next one of its own began; 0: that is not known."""
        later = [each for each in self._own if each > generation]
        return self._ended[later[0]] if later else UNKNOWN

    def capture(self) -> tuple[Generation, ...]:
        """As a value."""
        return self._own[1:]

    def capture_ended(self) -> tuple[Micros, ...]:
        """The newest moment of the log when each of `capture` began."""
        return tuple(self._ended[each] for each in self._own[1:])

    def restore(
        self, kept: tuple[Generation, ...], newest: Generation, ended: tuple[Micros, ...] = ()
    ) -> None:
        """What a checkpoint kept; an older one has the newest only, or no moments."""
        for each, moment in zip_longest((*kept, newest), ended, fillvalue=UNKNOWN):
            self.began(Generation(each), moment)
