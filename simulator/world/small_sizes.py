"""Small limits for a simulated world, so that what is rare elsewhere happens often."""

from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

from oncemq.broker import expiry
from oncemq.broker.state import leases
from oncemq.client.state import outbox
from oncemq.server import housekeeping
from oncemq.storage.log.log import LogOptions
from simulator.actors.leasing import GRACE_MICROS, LEASE_MS_MIN
from simulator.schedule.options import WorldOptions


@contextmanager
def small_sizes(options: WorldOptions) -> Generator[None]:
    """Sizes that make rare paths common, for as long as a world lives."""
    small: list[tuple[ModuleType, str, object]] = [
        (outbox, "ROTATE_BYTES", options.rotate_bytes),
        (
            outbox,
            "_OPTIONS",
            LogOptions(allocate_bytes=2048, reserve_bytes=1024, checkpoints=False),
        ),
        (housekeeping, "CAPTURED_A_TURN", 2),
        (housekeeping, "UPKEEP_MICROS", 150_000),
        (leases, "LEASE_MS_MIN", LEASE_MS_MIN),
        (expiry, "HOUR", GRACE_MICROS),
    ]
    usual = [(module, name, getattr(module, name)) for module, name, _ in small]
    for module, name, value in small:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in usual:
            setattr(module, name, value)
