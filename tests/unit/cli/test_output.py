"""Text on a terminal: what somebody else wrote is shown, and never obeyed."""

import pytest

from oncemq.cli.terminal import output


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("orders", "orders"),
        ("naïve 日本 👩‍💻", "naïve 日本 👩‍💻"),  # a joiner is part of what is written
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\x9bb\x7f\u2028", "a\\x9bb\\x7f\\u2028"),
        ("two\nlines\tand a tab", "two\nlines\\tand a tab"),
    ],
)
def test_control_characters_are_escaped(text: str, seen: str) -> None:
    assert output.shown(text) == seen


def test_a_cell_of_a_table_stays_on_its_line() -> None:
    assert output.table(["topic"], [["a\nb\x1b[2J"]]).splitlines()[1] == "a\\nb\\x1b[2J"
    assert output.pairs([("name", "a\nb")]) == "name  a\\nb"
