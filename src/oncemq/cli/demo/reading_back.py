"""What a demo ends with: the topic, the subscriber's database and what was put, compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from oncemq.audit.checker import Audit
from oncemq.audit.facts import GivenFact
from oncemq.cli.demo.ledger import DemoLedger
from oncemq.cli.demo.publisher import TIMEOUT, TOPIC
from oncemq.client.admin.topic_facts import walk
from oncemq.client.blocking.client import Client
from oncemq.protocol.names import Offset

GAPS = ("gap", "lost", "lost_sequence", "lost_prefix", "lost_middle", "lost_tail", "corrupt")
DUPLICATES = ("duplicate", "redelivered", "phantom")


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What was found; rows are those of the database."""

    rows: int
    gaps: int
    duplicates: int
    out_of_order: int
    findings: list[str]

    def is_exactly(self, messages: int) -> bool:
        """Whether so many messages took effect once each, and all of it was in order."""
        wrong = self.gaps or self.duplicates or self.out_of_order or self.findings
        return not wrong and self.rows == messages


def read_back(address: str, ledger: DemoLedger, counts: Mapping[str, int]) -> ReadBack:
    """Everything: nobody's memory is believed. `counts`: how many orders each publisher put."""
    audit = Audit()
    with Client(address, timeout=TIMEOUT) as client:
        for fact in walk(client, client.topic(TOPIC).topic, digests=True):
            audit.see(fact)
    audit.expect("ledger", TOPIC)
    for name, payload in ledger.effects():
        offset = Offset(int(name.rpartition("@")[2]))
        audit.see(GivenFact("ledger", TOPIC, offset, sha256(payload).digest()))
    findings = audit.finish()
    numbers = ledger.numbers()
    wanted = {(name, number) for name, count in counts.items() for number in range(1, count + 1)}
    again = sum(count - 1 for count in numbers.values()) + len(numbers.keys() - wanted)
    gaps = sum(findings.counts.get(kind, 0) for kind in GAPS)
    twice = sum(findings.counts.get(kind, 0) for kind in DUPLICATES)
    return ReadBack(
        rows=ledger.rows,
        gaps=max(gaps, len(wanted - numbers.keys())),
        duplicates=max(twice, again),
        out_of_order=findings.counts.get("reordered", 0) + findings.counts.get("time_back", 0),
        findings=[f"{each.topic}@{each.offset}: {each.detail}" for each in findings.kept],
    )
