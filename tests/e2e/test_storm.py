"""The checker of the storms finds what is planted into what the processes noted and stored."""

import copy
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from tests.e2e.storm import FLEETING, SUBSCRIBED, Outcome


class Kept(NamedTuple):
    """A message, as far as the checker looks at it."""

    offset: int
    payload: bytes
    sequence: int
    producer: str = "p" * 32
    timestamp: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Noted:
    """A storm that is over: three puts on alpha, one on gamma, each given to who subscribed."""

    publishers = ("publisher-0",)

    def __init__(self) -> None:
        self.told: dict[str, list[list[Any]]] = {
            "publisher-0": [
                ["about", "alpha", 1, 2], ["recorded", "alpha", 1, 2], ["stored", "alpha", 1, 2, 0],
                ["about", FLEETING, 3, 1], ["stored", FLEETING, 3, 1, 0],
                ["about", "alpha", 4, 1], ["stored", "alpha", 4, 1, 2],
                ["about", "alpha", 5, 1],
            ],
            "get-alpha": [["start", {}], *self.got("alpha", 1, 2, 4)],
            "get-gamma": [["start", {}], *self.got(FLEETING, 3)],
            "get-any": [
                ["start", {}], *self.got("alpha", 1, 2), ["start", {"alpha": 3}],
                *self.got(FLEETING, 3),
            ],
        }  # fmt: skip
        self.stored = {"alpha": self.kept(1, 2, 4), "beta": []}
        self.ends = {"alpha": 3, "beta": 0, FLEETING: 1}

    @staticmethod
    def got(topic: str, *numbers: int) -> list[list[Any]]:
        return [["got", topic, place, f"publisher-0:{n}"] for place, n in enumerate(numbers)]

    @staticmethod
    def kept(*numbers: int) -> list[Kept]:
        each = enumerate(numbers)
        return [Kept(place, f"publisher-0:{n}".encode(), place + 1) for place, n in each]

    def notes(self, name: str) -> list[list[Any]]:
        return self.told[name]

    def check(self) -> None:
        outcome = Outcome(self, self.stored, self.ends)  # type: ignore[arg-type]
        outcome.applied_in_order = lambda *_: None  # type: ignore[method-assign]
        outcome.check()


def test_what_fits_together_is_no_finding() -> None:
    assert set(SUBSCRIBED) >= {"get-alpha", "get-gamma", "get-any"}
    Noted().check()


def planted(kind: str) -> Noted:
    storm = copy.deepcopy(Noted())
    match kind:
        case "gap":
            storm.stored["alpha"].pop()
        case "lost":
            storm.told["publisher-0"].append(["recorded", "alpha", 5, 1])
        case "changed_receipt":
            storm.told["publisher-0"][2][4] = 1
        case "phantom":
            storm.told["get-gamma"][1][3] = "publisher-9:3"
        case "redelivered":
            storm.told["get-alpha"].append(storm.told["get-alpha"][-1])
        case "duplicate":
            storm.stored["alpha"] = storm.kept(1, 2, 2)
        case _:
            storm.told["get-alpha"].insert(1, storm.told["get-alpha"].pop(2))
    return storm


@pytest.mark.parametrize(
    "kind",
    ["gap", "lost", "changed_receipt", "phantom", "redelivered", "duplicate", "reordered"],
)
def test_what_does_not_fit_together_is_one(kind: str) -> None:
    with pytest.raises(AssertionError, match=rf"{kind}: "):
        planted(kind).check()
