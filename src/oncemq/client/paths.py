"""Where a client's state lives."""

import os
import re
from hashlib import blake2b
from pathlib import Path

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


def state_directory(client: str, state: str | Path | None) -> Path:
    """The directory given, or the client's own below the user's state directory."""
    if state is not None:
        return Path(state)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "oncemq" / directory_name(client)


def directory_name(client: str) -> str:
    """A safe file name for an id: itself where it is plain, else with a digest."""
    if _PLAIN.fullmatch(client):
        return client
    plain = re.sub(r"[^A-Za-z0-9._@+-]", "_", client).lstrip(".")[:40]
    return f"{plain}~{blake2b(client.encode(), digest_size=8).hexdigest()}"
