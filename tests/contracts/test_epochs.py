"""What every memory of a client does with epochs and logs, also a relay's, which has no cursors.

`test_memory.py` has the rest of the port.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncemq.client.state import memory_journal
from oncemq.client.state.journal import Journal
from oncemq.client.state.known import Memory
from oncemq.protocol.names import Epoch, Generation
from oncemq.relay.publisher import RelayMemory
from oncemq.session.handshake import NO_LOG, LogSeen
from simulator.machines.memory_journal import SimulatedJournal

MEMORIES: dict[str, Callable[[Path], Memory]] = {
    "sqlite": lambda path: Journal(path, "me"),
    "in one process": lambda path: memory_journal.MemoryJournal(),
    "simulated": lambda path: SimulatedJournal(),
    "relay": lambda path: RelayMemory(),
}


@pytest.fixture(params=list(MEMORIES))
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    made = MEMORIES[request.param](tmp_path)
    yield made
    if isinstance(made, Journal):
        made.close()


def test_a_new_one_knows_nothing(memory: Memory) -> None:
    assert memory.last_epoch() == 0
    known = memory.known()
    assert (known.log, known.cursors, known.ended) == (NO_LOG, {}, ())


def test_claims_stand_until_the_last_of_them_is_granted(memory: Memory) -> None:
    found = [memory.claim(nonce) for nonce in (30, 10, 20)]
    assert [each.claims for each in found] == [(), (30,), (30, 10)]
    assert [each.last_epoch for each in found] == [0, 0, 0]
    memory.granted(Epoch(4), 20)
    assert memory.last_epoch() == 4
    standing = memory.claim(40)
    assert (standing.last_epoch, standing.claims) == (4, ())
    memory.granted(Epoch(5), 40)
    assert memory.last_epoch() == 5


def test_the_log_it_knows_is_found_by_the_next_claim_and_grant(memory: Memory) -> None:
    here = LogSeen(b"log", Generation(3))
    memory.know(here)
    assert memory.claim(1).log == here
    assert memory.granted(Epoch(1), 1).log == here
    memory.know(LogSeen(b"log", Generation(4)))
    assert memory.known().log.generation == 4
