"""Who takes part in a simulated world, and what a step of its schedule is."""

from itertools import count

import msgspec

from simulator.schedule.options import WorldOptions

WILD_TOPICS = ("x", "x.a", "x.b", "x.a.b", "y.a", "x.v")  # made while watchers watch
MORTAL = "x.v"  # the one that is deleted and made anew
LATE = "late"  # to which nobody subscribes in the beginning
SINKS = 2
SETTLING_MS = 300  # first everyone starts and the first subscriptions are made

Value = int | str | bool


class WorldStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One deed of an application, or one mishap."""

    at_ms: int
    do: str
    who: str = ""
    args: dict[str, Value] = {}


class Cast:
    """Who takes part."""

    def __init__(self, options: WorldOptions) -> None:
        self.options = options
        self.numbers = count(10_000)  # of puts that belong to a mishap
        self.topics = [f"t{n}" for n in range(options.topics)]
        self.publishers = [f"p{n}" for n in range(options.publishers)]
        self.guests = [f"g{n}" for n in range(options.guests)]
        self.subscribers = [f"s{n}" for n in range(options.subscribers)]
        self.watchers = ["w0", "w1"] if options.wild else []  # that subscribe by pattern
        self.holders = ["h0", "h1"] if options.leases else []  # whose subscriptions are leased
        self.wild_topics = list(WILD_TOPICS) if options.wild else []
        # Lives are told apart by numbers that begin anew where a log goes back.
        self.mortal_topics = [MORTAL] if options.wild and not options.back else []
        self.late_topics = [LATE] if options.required else []

    @property
    def lasting(self) -> list[str]:
        """Clients with state."""
        return [*self.publishers, *self.subscribers, *self.watchers, *self.holders]

    @property
    def inboxes(self) -> list[str]:
        """Clients whose messages take effect in a database of their own."""
        return [*self.subscribers, *self.watchers] if self.options.inbox else []

    def has(self, fault: str) -> bool:
        """Whether this world has the fault."""
        return fault in self.options.faults
