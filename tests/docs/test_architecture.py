"""ARCHITECTURE.md names places that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
PLACES = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_0-9*]+)+/?)`", TEXT)))


def exists(place: str) -> bool:
    bases = (ROOT / "src" / "oncemq", ROOT)
    names = (place.rstrip("/"), f"{place}.py")
    return any(list(base.glob(name)) for base in bases for name in names)


def test_it_names_places() -> None:
    assert len(PLACES) > 30


def test_every_place_it_names_exists() -> None:
    assert [place for place in PLACES if not exists(place)] == []


def test_it_names_every_package() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "oncemq").glob("*/__init__.py")}
    tree = TEXT[TEXT.index("## The tree") : TEXT.index("## The walk of a put")]
    assert {name for name in packages if name not in tree} == set()
