"""The checker of `once audit` for your own tests: tell it what was seen, and it says what is wrong.

docs/TESTING.md has an example; `oncemq.audit.facts` says what each fact means, and
`oncemq.audit.checker` in which order they come.
"""

from oncemq.audit.checker import Audit, check
from oncemq.audit.facts import (
    GivenFact,
    Held,
    Joined,
    Joining,
    Leaving,
    Left,
    OpenedFact,
    PutFact,
    SettledFact,
    Skipped,
    StoredFact,
    Tainted,
)
from oncemq.audit.findings import KINDS, Finding, Findings

__all__ = [
    "KINDS",
    "Audit",
    "Finding",
    "Findings",
    "GivenFact",
    "Held",
    "Joined",
    "Joining",
    "Leaving",
    "Left",
    "OpenedFact",
    "PutFact",
    "SettledFact",
    "Skipped",
    "StoredFact",
    "Tainted",
    "check",
]
