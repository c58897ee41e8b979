"""For tests, yours and ours: the real server in the same process, and faults on request.

Names are loaded when they are first used: the pytest plugin lives here, and a test run that does
not use it does not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncemq.testing.auditing import audit
    from oncemq.testing.chaos import Chaos
    from oncemq.testing.checker import check
    from oncemq.testing.crash_points import CrashPoints
    from oncemq.testing.embedded import chaotic_server, server
    from oncemq.testing.faulty_disk import FaultyDisk
    from oncemq.testing.unsynced_changes import PowerCut

_HOMES = {
    "Chaos": "oncemq.testing.chaos",
    "CrashPoints": "oncemq.testing.crash_points",
    "FaultyDisk": "oncemq.testing.faulty_disk",
    "PowerCut": "oncemq.testing.unsynced_changes",
    "audit": "oncemq.testing.auditing",
    "chaotic_server": "oncemq.testing.embedded",
    "check": "oncemq.testing.checker",
    "server": "oncemq.testing.embedded",
}

__all__ = [
    "Chaos",
    "CrashPoints",
    "FaultyDisk",
    "PowerCut",
    "audit",
    "chaotic_server",
    "check",
    "server",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'oncemq.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
