"""The fixtures of tests/harness, for every unit test: one builder for each layer."""

from tests.harness.broker import desk, make_desk
from tests.harness.client import some_bytes, world
from tests.harness.quick_disk import quick_disk
from tests.harness.server import host, make_host
from tests.harness.storage import copying_disk, make_scribe, payloads_of, scribe

__all__ = [
    "copying_disk",
    "desk",
    "host",
    "make_desk",
    "make_host",
    "make_scribe",
    "payloads_of",
    "quick_disk",
    "scribe",
    "some_bytes",
    "world",
]
