"""What is so by default: where the server is, and the state of clients and pipelines, and more."""

import os
import re
from hashlib import blake2b
from pathlib import Path

BUSY_MICROS = "ONCEMQ_BUSY_MICROS"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


def default_servers() -> str:
    """The servers that ONCEMQ_SERVER names, or nothing."""
    return os.environ.get("ONCEMQ_SERVER", "")


def busy_micros() -> str:
    """What ONCEMQ_BUSY_MICROS says, or nothing: how long who waits for an answer may look."""
    return os.environ.get(BUSY_MICROS, "")


def state_directory(client: str, state: str | Path | None) -> Path:
    """The directory given, or the client's own below the user's state directory."""
    return Path(state) if state is not None else _base() / "oncemq" / directory_name(client)


def pipeline_directory(name: str) -> Path:
    """A pipeline's own; apart from the clients', whose ids may be any."""
    return _base() / "oncemq-pipelines" / directory_name(name)


def _base() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def directory_name(client: str) -> str:
    """A safe file name for an id: itself where it is plain, else with a digest."""
    if _PLAIN.fullmatch(client):
        return client
    plain = re.sub(r"[^A-Za-z0-9._@+-]", "_", client).lstrip(".")[:40]
    return f"{plain}~{blake2b(client.encode(), digest_size=8).hexdigest()}"
