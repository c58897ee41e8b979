"""What an audit says, as a table and as JSON: of one process, and of Spark."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from oncemq.audit.findings import KINDS, Findings
from oncemq.cli.terminal import output

FOUND = 6  # the exit code: a gap, a duplicate, anything that breaks a promise


@dataclass(frozen=True)
class LogLine:
    """What was looked at of a topic; `holder` where there may be several."""

    topic: str
    messages: int
    low: int
    end: int
    producers: int
    holder: str | None = None
    lost: Sequence[tuple[int, int]] = ()  # holes that the server names: a person agreed to them


@dataclass(frozen=True)
class JournalLine:
    """What a journal has of a topic; `freed` are effects of messages that are not kept any more."""

    journal: str
    topic: str
    effects: int
    freed: int


@dataclass(frozen=True)
class AuditReport:
    """The whole; `journals` is None when none were given."""

    logs: Sequence[LogLine]
    journals: Sequence[JournalLine] | None
    findings: Findings

    def as_object(self) -> dict[str, object]:
        """As programs get it."""
        return {
            "clean": not self.findings.counts,
            "counts": {kind: self.findings.counts.get(kind, 0) for kind in KINDS},
            "topics": [_log_object(each) for each in self.logs],
            "journals": [
                {
                    "journal": each.journal,
                    "topic": each.topic,
                    "effects": each.effects,
                    "freed": each.freed,
                }
                for each in self.journals or ()
            ],
            "findings": [
                {
                    "kind": each.kind,
                    "promise": each.promise,
                    "message": f"{each.topic}@{each.offset}",
                    "count": each.count,
                    "detail": each.detail,
                }
                for each in self.findings.kept
            ],
        }

    def text(self) -> str:
        """As people get it."""
        parts = [self._topics(), self._lost(), self._found(), self._verdict()]
        return "\n\n".join(part for part in parts if part)

    def _topics(self) -> str:
        if not self.logs:
            return ""
        held = any(each.holder for each in self.logs)
        heads = ["topic", "messages", "low", "end", "producers"]
        heads += ["in"] * held + ["effects"] * (self.journals is not None)
        rows: list[list[object]] = []
        for each in self.logs:
            row: list[object] = [each.topic, each.messages, each.low, each.end, each.producers]
            row += [each.holder] * held
            if self.journals is not None:
                row.append(sum(j.effects for j in self.journals if j.topic == each.topic))
            rows.append(row)
        return output.table(heads, rows)

    def _lost(self) -> str:
        return "\n".join(
            f"{each.topic}@{first} up to @{end} is lost: a person agreed to go on without it"
            for each in self.logs
            for first, end in each.lost
        )

    def _found(self) -> str:
        rows = [
            [each.kind.replace("_", " "), each.promise, f"{each.topic}@{each.offset}", each.count,
             each.detail]
            for each in self.findings.kept
        ]  # fmt: skip
        heads = ["finding", "breaks", "message", "count", "detail"]
        return output.table(heads, rows) if rows else ""

    def _verdict(self) -> str:
        looked = output.counted(sum(each.messages for each in self.logs), "message")
        if self.journals is not None:
            effects = sum(each.effects for each in self.journals)
            looked += f", {output.counted(effects, 'effect')}"
        if not self.findings.counts:
            return output.painted(f"{looked}: 0 gaps, 0 duplicates, nothing found", sys.stdout, 32)
        told = ", ".join(
            f"{count:,} {kind.replace('_', ' ')} ({KINDS[kind][1]})"
            for kind, count in self.findings.counts.items()
        )
        return output.painted(f"{looked}: {told}", sys.stdout, 31)


def _log_object(line: LogLine) -> dict[str, object]:
    found: dict[str, object] = {
        "topic": line.topic,
        "low": line.low,
        "end": line.end,
        "messages": line.messages,
        "producers": line.producers,
    }
    if line.lost:
        found["lost"] = [{"from": first, "to": end} for first, end in line.lost]
    return found | ({"in": line.holder} if line.holder else {})
