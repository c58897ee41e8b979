"""What may be a name, and what a refused one is told."""

import pytest

from oncemq.protocol.names import is_anonymous, is_system, name_fault

GOOD = [
    "orders",
    "../x",
    "a/b\\c",
    ".",
    "with space",
    "Ünïcödé",
    "\N{SNOWMAN}",
    "_system",
    "x" * 255,
    "é" * 127,
]

BAD = [
    ("", "the topic name is empty; give it 1 to 255 bytes"),
    ("x" * 256, "the topic name has 256 bytes; 255 at most"),
    ("é" * 128, "the topic name has 256 bytes; 255 at most"),
    ("a\nb", "the topic name 'a\\nb' has a control character; leave it out"),
    ("\x00", "the topic name '\\x00' has a control character; leave it out"),
    ("a\x7f", "the topic name 'a\\x7f' has a control character; leave it out"),
    ("a\x85", "the topic name 'a\\x85' has a control character; leave it out"),
    ("e\u0301", "the topic name 'e\u0301' is not in Unicode form NFC; normalize it first"),
    ("\ud800", "the topic name '\\ud800' is not valid UTF-8"),
]


@pytest.mark.parametrize("name", GOOD)
def test_a_name_is_1_to_255_bytes_of_nfc_without_control_characters(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize(("name", "fault"), BAD)
def test_another_name_is_told_what_is_wrong_with_it(name: str, fault: str) -> None:
    assert name_fault(name) == fault


def test_the_fault_says_what_kind_of_name_it_is() -> None:
    assert name_fault("", what="client id") == "the client id is empty; give it 1 to 255 bytes"


def test_a_leading_underscore_is_the_systems() -> None:
    assert (is_system("_x"), is_system("x_")) == (True, False)


def test_an_anonymous_client_is_known_by_its_prefix() -> None:
    assert (is_anonymous("_anonymous-12"), is_anonymous("anonymous-12")) == (True, False)
