"""The form of what a release shows: the changelog, the version, the decisions."""

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
BULLET_MAX = 200
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
STATUS = re.compile(r"Status: (accepted|superseded by \d+|withdrawn)\. Date: (\d{4}-\d\d-\d\d)\.")

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_newest_entry_of_the_changelog_is_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    entries = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", CHANGELOG, re.MULTILINE)
    assert entries[0][0] == project["version"]
    days = [date.fromisoformat(day) for _, day in entries]
    assert days == sorted(days, reverse=True)


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)[0] == "[Unreleased]"


def test_a_bullet_of_the_changelog_is_short() -> None:
    bullets = [line for line in CHANGELOG.splitlines() if line.startswith("- ")]
    assert bullets
    assert [each for each in bullets if len(each) > BULLET_MAX] == []


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_its_number_its_status_and_its_date(path: Path) -> None:
    title, empty, status, *_ = path.read_text("utf-8").splitlines()
    assert title.startswith(f"# {int(path.name[:4])}. ")
    assert empty == ""
    found = STATUS.fullmatch(status)
    assert found is not None, status
    date.fromisoformat(found[2])


def test_decisions_are_found() -> None:
    assert len(DECISIONS) > 30


def test_every_extra_that_somebody_is_told_to_install_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    told = [*DOCUMENTS, *(ROOT / "src").rglob("*.py")]
    named = [
        extra
        for path in told
        for extras in re.findall(r"'(?:oncemq|\.)\[([a-z,]+)\]'", path.read_text("utf-8"))
        for extra in extras.split(",")
    ]
    assert set(named) == set(project["optional-dependencies"])


def test_the_readme_leads_to_every_document() -> None:
    linked = re.findall(r"\]\((docs/\w+\.md)", DOCUMENTS[0].read_text("utf-8"))
    assert {f"docs/{path.name}" for path in DOCUMENTS[1:]} - set(linked) == set()
