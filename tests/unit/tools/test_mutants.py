"""Which places of a file are broken, and how."""

from pathlib import Path

import pytest

from tools.mutants import AREAS, files_of, mutants_of

ROOT = Path(__file__).parents[3]


def changes(tmp_path: Path, text: str, *, syncs: bool = False) -> list[str]:
    """Each mutant's file."""
    path = tmp_path / "module.py"
    path.write_text(text)
    mutants = mutants_of(path, tmp_path, syncs=syncs)
    return [mutant.applied(text.encode()).decode() for mutant in mutants]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("if a:\n    b()\n", ["if (not (a)):\n    b()\n", "if a:\n    pass\n"]),
        ("a = b < c\n", ["a = (b <= c)\n"]),
        ("a = b and c\n", ["a = ((b) or (c))\n"]),
        ("a = not b\n", ["a = (b)\n"]),
        ("a = b + c\n", ["a = (b - c)\n"]),
        ("a = 5\n", ["a = 6\n"]),
        ("a.b = c\n", ["pass\n"]),
        ("del a\n", ["pass\n"]),
        ("raise ValueError(f'{1 + 2}')\n", ["pass\n"]),
        ("def f():\n    return True\n", ["def f():\n    return False\n"]),
        ("'''ä'''\na = 'é' < b\n", ["'''ä'''\na = ('é' <= b)\n"]),  # places are counted in bytes
    ],
)
def test_a_place_is_broken_in_each_way_that_fits(tmp_path: Path, text: str, broken: list[str]):
    assert changes(tmp_path, text) == broken


@pytest.mark.parametrize(
    "text",
    [
        "'''A text.'''\n",
        "import a\n",
        "assert a < 5\n",
        "a: int = 5\n",
        "logger.info('so many: %d', 1 + 2)\n",
        "def f(a: int = 5) -> None: ...\n",
        "if TYPE_CHECKING:\n    import a\n",
    ],
)
def test_what_no_test_could_notice_is_left_alone(tmp_path: Path, text: str):
    assert changes(tmp_path, text) == []


def test_syncs_are_left_out_one_at_a_time(tmp_path: Path):
    text = "file.write(a)\nfile.sync()\ndb.execute('PRAGMA synchronous=FULL')\n"
    assert changes(tmp_path, text, syncs=True) == [
        "file.write(a)\npass\ndb.execute('PRAGMA synchronous=FULL')\n",
        "file.write(a)\nfile.sync()\npass\n",
    ]


def test_every_area_has_its_files():
    for area in AREAS:
        paths = files_of(ROOT / "src" / "oncemq", (area,))
        assert paths
        assert all(path.exists() for path in paths)
