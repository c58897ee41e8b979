"""Options as Spark hands them over: text, with their names in lower case.

Laws: they are shown to people as they are documented; an option that is not known, or not known
here, is refused by name, with what to use instead.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from oncemq.client.settings import DEFAULT_SERVER, servers_from
from oncemq.errors import ConfigError

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}

# Of Spark's Kafka source and sink, and what does the same here.
KAFKA = {
    "kafka.bootstrap.servers": "the option server names the server",
    "kafka.group.id": "the option subscription names what the query holds its topics under",
    "groupidprefix": "the option subscription names what the query holds its topics under",
    "startingoffsetsbytimestampstrategy": "a time after the last message is the end of the topic, "
    "as with Kafka's strategy latest: leave the option out",
    "kafkaconsumer.polltimeoutms": "the option timeout says for how many seconds to try a server",
    "fetchoffset.numretries": "the option timeout says for how many seconds to try a server",
    "fetchoffset.retryintervalms": "the option timeout says for how many seconds to try a server",
    "maxbytespertrigger": "the option maxOffsetsPerTrigger bounds a micro-batch, by its rows",
    "partition": "a topic here has no partitions: leave the option out",
}


class GivenOptions:
    """Options looked up by their documented names; `elsewhere` are those of other uses."""

    def __init__(
        self,
        given: Mapping[str, str],
        known: Sequence[str],
        where: str,
        elsewhere: Sequence[str] = (),
    ) -> None:
        self._given = {name.lower(): text for name, text in given.items()}
        names = {name.lower(): name for name in known}
        others = {name.lower(): name for name in elsewhere}
        for name in self._given:
            if name not in names:
                raise ConfigError(_unknown(name, names, others, where))

    @property
    def server(self) -> str:
        """The addresses, with commas."""
        return ",".join(servers_from(self.text("server", DEFAULT_SERVER)))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """One of the choices; the first when not given."""
        text = self.text(name, choices[0])
        if text.lower() not in choices:
            raise ConfigError(f"{name} is {' or '.join(map(repr, choices))}, not {text!r}")
        return text.lower()

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name, str(default).lower()).lower()
        if text not in ("true", "false"):
            raise ConfigError(f"{name} is 'true' or 'false', not {text!r}")
        return text == "true"

    def whole(self, name: str, default: int | None) -> int | None:
        """A whole number of 1 or more."""
        text = self.text(name, "")
        if name not in self:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
            raise ConfigError(f"{name} is a whole number, 1 or more, not {text!r}")
        return int(text)

    def number(self, name: str, default: float) -> float:
        """Seconds."""
        text = self.text(name, str(default))
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            raise ConfigError(f"{name} is a number of seconds above 0, not {text!r}")
        return seconds

    def duration(self, name: str) -> float | None:
        """Seconds, of a time with its unit; None when it is not given, or is none."""
        parts = re.fullmatch(r"([0-9]{1,9}) *([a-z]+)", self.text(name, "").strip().lower())
        return int(parts[1]) * SECONDS[parts[2]] if parts and parts[2] in SECONDS else None


def _unknown(name: str, names: dict[str, str], others: dict[str, str], where: str) -> str:
    if name in others:
        return f"the option {others[name]} is not for {where}"
    if name in KAFKA:
        return f"oncemq has no option {name!r}: {KAFKA[name]}"
    if name.startswith("kafka."):
        return f"oncemq has no option {name!r}: leave out what is for Kafka's own client"
    if name == "path":
        return "oncemq has topics, not paths: leave the path out, and name topics by option"
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(names.values())}"
    return f"oncemq has no option {name!r} for {where}; {hint}"
