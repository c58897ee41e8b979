"""`put --lines` reads every byte once, and the progress of it is shown with care."""

import io
import os
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.cli.terminal import lines
from oncemq.cli.terminal.lines import Lines, LineSource, batches
from oncemq.cli.terminal.progress import Progress


def gathered(raw: bytes) -> list[Lines]:
    return list(batches(LineSource(io.BytesIO(raw))))


def payloads(raw: bytes) -> list[bytes]:
    return [payload for each in gathered(raw) for payload in each.payloads]


@given(st.lists(st.binary().filter(lambda raw: b"\n" not in raw)), st.booleans())
def test_every_line_is_one_payload_untouched(texts: list[bytes], ended: bool) -> None:
    raw = b"\n".join(texts) + b"\n" * ended
    expected = raw.split(b"\n")
    if expected[-1] == b"":
        expected.pop()  # what follows the last newline is no line
    assert payloads(raw) == expected


def test_a_line_may_be_longer_than_one_read() -> None:
    long = b"x" * (3 * lines.READ_BYTES + 7)
    assert payloads(b"a\n" + long + b"\nb") == [b"a", long, b"b"]


def test_batches_are_bounded_and_know_their_first_line() -> None:
    found = gathered(b"x\n" * 12_345)
    assert [each.first for each in found] == [1, 5001, 10001]
    assert all(len(each.payloads) <= lines.LINES_MAX for each in found)
    wide = gathered((b"y" * 999 + b"\n") * 5_000)
    assert sum(len(each.payloads) for each in wide) == 5_000
    assert all(left.first + len(left.payloads) == right.first for left, right in pairwise(wide))
    assert all(sum(map(len, each.payloads)) < 2 * lines.BYTES_MAX for each in wide)


def test_a_slow_pipe_is_put_line_by_line() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb", buffering=0) as feed:
        found = batches(LineSource(stream))
        feed.write(b"one\ntw")
        assert next(found).payloads == [b"one"]
        feed.write(b"o\n")
        assert next(found).payloads == [b"two"]


def test_only_a_file_has_a_size(tmp_path: object) -> None:
    assert LineSource(io.BytesIO(b"abc")).size is None
    with open(__file__, "rb") as stream:
        assert LineSource(stream).size == os.path.getsize(__file__)


# ------------------------------------------------------------------ progress


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class Clock:
    """Time that goes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_takes_less_than_a_second_shows_nothing() -> None:
    screen, clock = Screen(terminal=True), Clock()
    with Progress("put", screen, clock=clock) as progress:
        clock.now += 0.9
        progress.update(5, 0.5)
    assert screen.getvalue() == ""


def test_a_terminal_gets_a_bar_with_rate_and_time_left_that_goes_away() -> None:
    screen, clock = Screen(terminal=True), Clock()
    with Progress("put", screen, clock=clock) as progress:
        clock.now += 30
        progress.update(60_000, 0.25)
    line = "[#####...............] 25% put 60,000 messages, 2,000/s, 1:30 left"
    assert screen.getvalue() == f"\r\x1b[K{line}\r\x1b[K"


def test_a_log_gets_a_plain_line_every_five_seconds() -> None:
    screen, clock = Screen(terminal=False), Clock()
    with Progress("got", screen, clock=clock) as progress:
        for count in range(1, 13):
            clock.now += 1
            progress.update(count, None)
    assert screen.getvalue() == "once: got 5 messages, 1/s\nonce: got 10 messages, 1/s\n"


@pytest.mark.parametrize("part", [None, 0.0, 2.0])
def test_an_unknown_or_overrun_whole_is_no_error(part: float | None) -> None:
    screen, clock = Screen(terminal=True), Clock()
    with Progress("put", screen, clock=clock) as progress:
        clock.now += 2
        progress.update(1, part)
    assert "put 1 message, 0/s" in screen.getvalue()
