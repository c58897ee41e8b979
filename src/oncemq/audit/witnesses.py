"""Which message is where, as each witness says: the log, the receipts, those who were given it.

Law: one message has one place, one place has one message, whoever tells of it. Who was put again
out of an old copy of an outbox, under other numbers, has one place more.
"""

from typing import NamedTuple

from oncemq.audit.findings import Findings

RECEIPT = "its receipt"
LOG = "the log"


class Witness(NamedTuple):
    """What somebody said first."""

    message: bytes
    who: str


class Places:
    """Every named message, and where it is."""

    def __init__(self, findings: Findings) -> None:
        self.ends: dict[str, int] = {}  # of each topic, as far as anybody was there
        self._findings = findings
        self._there: dict[tuple[str, int], Witness] = {}
        self._of: dict[bytes, int] = {}
        self._again: dict[bytes, int] = {}  # the other place of who may have one more
        self._logged: set[bytes] = set()

    def of(self, message: bytes) -> int | None:
        """Its offset, if anybody knows."""
        return self._of.get(message)

    def is_logged(self, message: bytes) -> bool:
        """Whether a log has it."""
        return message in self._logged

    def note(
        self, topic: str, offset: int, message: bytes, who: str, *, again: bool = False
    ) -> None:
        """Somebody says that the message is there; `again`: it may have one place more."""
        first = self._there.setdefault((topic, offset), Witness(message, who))
        if first.message != message:
            kind = "changed_receipt" if RECEIPT in (first.who, who) else "diverged"
            detail = f"{_name(message)} to {who}, {_name(first.message)} to {first.who}"
            self._findings.add(kind, topic, offset, detail)
        known = self._of.setdefault(message, offset)
        if known != offset and again:
            known = self._again.setdefault(message, offset)
        if known != offset:
            detail = f"{_name(message)} to {who}, which is at @{known} too"
            self._findings.add("duplicate", topic, offset, detail)
        if who == LOG:
            self._logged.add(message)
        self.ends[topic] = max(self.ends.get(topic, 0), offset + 1)


def _name(message: bytes) -> str:
    return message[:40].decode("utf-8", "replace")
