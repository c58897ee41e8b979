"""How long the way of a put is: functions of ours from `Client.put` to the socket's send.

Counted is each function of the package that the message goes through, once: one that is given it
(as payload, as body of a batch, or in something that has it one or two steps inside), that returns
it, or that waits on the stack while another one has it. Not counted: what only looks at the
client (limits, clocks, the signal shield, properties) and comprehensions.
"""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

import oncemq
from oncemq import Client
from oncemq.transport.dealer import DealerSocket

MARK = b"the very message that is put"
PACKAGE = str(Path(oncemq.__file__).parent)
FUNCTIONS_MAX = 23
CALLS_MAX = 85  # of them all, there and back


def carries(value: Any, depth: int = 2) -> bool:
    if isinstance(value, bytes | bytearray | memoryview):
        return MARK in bytes(value)
    return depth > 0 and any(carries(each, depth - 1) for each in parts(value))


def parts(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value[:8]
    elif isinstance(value, msgspec.Struct):
        yield from (getattr(value, name) for name in value.__struct_fields__)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, each.name, None) for each in dataclasses.fields(value))


class Corridor:
    """The functions that the message goes through until it is sent."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], None] = {}
        self.is_sent = False

    def watch(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if self.is_sent or event not in ("call", "return") or not is_ours(code):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [frame.f_locals.get(name) for name in names if name != "self"]
        if not any(map(carries, given if event == "call" else [value])):
            return
        on_stack: FrameType | None = frame
        while on_stack is not None:
            if is_ours(on_stack.f_code):
                place = on_stack.f_code.co_filename.removeprefix(PACKAGE)
                self.functions[place, on_stack.f_code.co_qualname] = None
            on_stack = on_stack.f_back
        self.is_sent = code is DealerSocket.send.__code__


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")


def test_the_way_of_a_durable_put_to_the_socket_is_short(server: str, tmp_path: Path) -> None:
    with Client(server, id="ada", state=tmp_path / "ada") as ada:
        ada.put("orders", b"let in, and the topic known")
        corridor = Corridor()
        sys.setprofile(corridor.watch)
        try:
            ada.put("orders", MARK)
        finally:
            sys.setprofile(None)
    assert corridor.is_sent
    modules = {module for module, _ in corridor.functions}
    print(f"{len(corridor.functions)} functions in {len(modules)} modules")
    for module, function in corridor.functions:
        print(f"  {module}: {function}")
    assert len(corridor.functions) <= FUNCTIONS_MAX


def test_a_put_alone_takes_few_calls_there_and_back(server: str) -> None:
    """Each is paid for by every put, on a processor that was elsewhere meanwhile."""
    with Client(server) as guest:
        for _ in range(2):
            guest.put("orders", b"let in, and the topic known")
        calls: list[str] = []

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and is_ours(frame.f_code):
                calls.append(frame.f_code.co_qualname)

        sys.setprofile(note)
        try:
            guest.put("orders", MARK)
        finally:
            sys.setprofile(None)
    assert len(calls) <= CALLS_MAX, "\n".join(calls)
