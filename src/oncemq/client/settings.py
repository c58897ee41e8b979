"""How a client was asked to behave."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncemq.client.state.paths import default_servers
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.replies import WelcomeLimits

DEFAULT_SERVER = "tcp://127.0.0.1:5556"


@dataclass(slots=True)
class Settings:
    """Given once, except `limits`, which the server tells."""

    servers: list[str]
    timeout: float
    outbox_bytes_max: int
    chance: Callable[[], float]
    limits: WelcomeLimits = ServerLimits().limits
    lanes_kept: int = 1_000  # topics put to, before the server is asked which were deleted


def servers_from(server: str | Sequence[str]) -> list[str]:
    """Addresses from a string with commas, or from a sequence of strings.

    Without any: those of ONCEMQ_SERVER, else the default.
    """
    named = server or default_servers()
    parts = named.split(",") if isinstance(named, str) else named
    addresses = [part.strip() for part in parts if part.strip()]
    return [each if "://" in each else f"tcp://{each}" for each in addresses] or [DEFAULT_SERVER]
