"""The form of text files."""

import subprocess
from pathlib import Path

import pytest

from tools.text_files import faults_of, main

ROOT = Path(__file__).parents[3]
OURS = (".py", ".md", ".toml", ".txt", ".json", ".yaml", ".pml", ".lock", ".in")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.py", b"x = 1", "no newline at the end"),
        ("a.py", b"x = 1\n\n", "empty lines at the end"),
        ("a.py", b"x = 1 \ny = 2\n", "a.py:1: blanks"),
        ("a.py", b"x = 1\r\n", "CR LF"),
        ("a.toml", b"x =\n", "a.toml: "),
        ("a.toml", b'x = "\xff"\n', "a.toml: "),
    ],
)
def test_a_fault_is_told(name: str, content: bytes, expected: str) -> None:
    (fault,) = faults_of(Path(name), content)
    assert expected in fault


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.py", b""), ("a.py", b"x = 1\n"), ("a.md", b"a break  \nhere\n"), ("a.toml", b"x = 1\n")],
)
def test_what_is_right_is_not(name: str, content: bytes) -> None:
    assert list(faults_of(Path(name), content)) == []


def test_the_exit_code_says_whether_all_is_well(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("x = 1\n")
    bad.write_text("x = \n")
    assert (main([str(good)]), main([str(good), str(bad)])) == (0, 1)


def test_every_text_file_of_the_repository_is_in_form() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("no git repository: an unpacked sdist")
    names = [Path(name) for name in listed.stdout.decode().split("\0")]
    paths = [ROOT / name for name in names if name.suffix in OURS and (ROOT / name).is_file()]
    assert len(paths) > 400
    assert [fault for path in paths for fault in faults_of(path, path.read_bytes())] == []
