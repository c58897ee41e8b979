"""The examples of docs/TESTING.md run as they stand, and the table of findings is whole."""

import re
from pathlib import Path

import pytest

import oncemq.testing
from oncemq.audit.findings import KINDS

TEXT = (Path(__file__).parents[3] / "docs/TESTING.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n", 1)[0])
def test_an_example_runs(example: str) -> None:
    exec(compile(example, "docs/TESTING.md", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("call", ["file.sync()", 'disk.sync_directory("/data")'])
def test_the_crash_points_of_the_example_need_each_sync(call: str) -> None:
    (example,) = (each for each in EXAMPLES if "CrashPoints" in each)
    before, found, after = example.rpartition(f"    {call}")
    assert found
    with pytest.raises(AssertionError):
        exec(compile(f"{before}    pass{after}", "example", "exec"), {})


def test_every_finding_is_in_the_table() -> None:
    for kind, (promise, meaning) in KINDS.items():
        assert f"| {kind} | {promise} | {meaning} |" in TEXT


@pytest.mark.parametrize("name", oncemq.testing.__all__)
def test_every_name_for_tests_is_there(name: str) -> None:
    assert getattr(oncemq.testing, name) is not None
