"""The checker of `once audit` for your own tests: tell it what was seen, and it says what is wrong.

docs/TESTING.md has an example; `oncemq.core.audit.facts` says what each fact means, and
`oncemq.core.audit.checker` in which order they come.
"""

from oncemq.core.audit.checker import Audit, check
from oncemq.core.audit.facts import (
    Given,
    Held,
    Joined,
    Joining,
    Leaving,
    Left,
    Opened,
    Put,
    Settled,
    Skipped,
    Stored,
    Tainted,
)
from oncemq.core.audit.findings import KINDS, Finding, Findings

__all__ = [
    "KINDS",
    "Audit",
    "Finding",
    "Findings",
    "Given",
    "Held",
    "Joined",
    "Joining",
    "Leaving",
    "Left",
    "Opened",
    "Put",
    "Settled",
    "Skipped",
    "Stored",
    "Tainted",
    "check",
]
