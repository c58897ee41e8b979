"""Transcripts: what a broker writes and answers, step by step, as text one can read.

Each file beside this one is a conversation, and so is each in `requests`: one for every request of
the protocol. A line that begins with `>` is asked; the lines below it are what must follow, word
for word: `w` a record written, `r` a reply to a caller (`after n`: it leaves once the log is
durable up to serial n). Epochs, subscription ids and producers are kept by the runner, as clients
keep them. `again` repeats the bytes that were asked last. REWRITE=1 writes the files anew: read
the difference.
"""

import ast
import os
import re
from functools import cache
from pathlib import Path
from typing import get_args, get_origin

import msgspec
import pytest

import oncemq
from oncemq.protocol.replies import RefusedReply, Reply
from oncemq.protocol.requests import REQUESTS, Put, Request, StagePut
from oncemq.protocol.step import Deliver
from tests.scenarios.conversation import Conversation, Exchange

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.txt"))
KINDS = sorted(REQUESTS.values(), key=lambda kind: kind.opcode)


def played(script: str) -> tuple[str, Conversation]:
    """The script with what really followed each step."""
    conversation = Conversation()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith("> "):
            lines += [line, *conversation.do(line[2:])]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n", conversation


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(path: Path) -> None:
    script = path.read_text("utf-8")
    found, _ = played(script)
    if os.environ.get("REWRITE"):
        path.write_text(found, "utf-8")
    assert found == script


# ------------------------------------------------------------------ each request has a transcript


def transcript(kind: type[Request]) -> Path:
    """`ListTopics` is in requests/list_topics.txt."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
    return HERE / "requests" / f"{name}.txt"


@cache
def conversation_of(kind: type[Request]) -> Conversation:
    return played(transcript(kind).read_text("utf-8"))[1]


def asked(kind: type[Request]) -> list[Exchange]:
    return [each for each in conversation_of(kind).asked if type(each.request) is kind]


def answers_to(kind: type[Request]) -> list[Reply | Deliver]:
    return [answer for each in asked(kind) for answer in each.answers]


def codes_of(kind: type[Request]) -> set[str]:
    """The refusals that a request gets in its own transcript."""
    return {answer.code for answer in answers_to(kind) if isinstance(answer, RefusedReply)}


def has_list(kind: type[Request]) -> bool:
    return any(
        get_origin(each.type) is tuple and Ellipsis in get_args(each.type)
        for each in msgspec.structs.fields(kind)
    )


def codes_due(kind: type[Request]) -> set[str]:
    """The refusals that a request can get by what it is; its own rules may have more."""
    due: set[str] = set()
    if "client_epoch" in kind.__struct_fields__:
        due |= {"unknown_client", "fenced"}
    if has_list(kind):
        due |= {"too_large"}
    if issubclass(kind, Put | StagePut):
        due |= {"checksum", "malformed", "too_large"}
    if any(each.wrote for each in asked(kind)):
        due |= {"storage_full"}
    return due


def test_every_request_has_a_transcript_and_every_transcript_a_request() -> None:
    there = set((HERE / "requests").iterdir())
    assert {path.name for path in there} == {transcript(kind).name for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_transcript_has_the_ordinary_answer_the_repeat_and_each_refusal(
    kind: type[Request],
) -> None:
    welcome = [answer for answer in answers_to(kind) if not isinstance(answer, RefusedReply)]
    assert welcome, "nothing but refusals"
    assert kind in conversation_of(kind).repeated, f"no {kind.__name__} is sent again"
    assert codes_due(kind) - codes_of(kind) == set()


def refusals_of(source: str) -> set[str]:
    """The codes that a module writes into refusals."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "RefusedReply" and call.args
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    }


@cache
def known_refusals() -> set[str]:
    """Of the broker, and of the checks before it."""
    package = Path(oncemq.__file__).parent
    folders = [package / "protocol", package / "broker"]
    modules = [each for folder in folders for each in folder.rglob("*.py")]
    modules.append(package / "server" / "admission.py")
    return set[str]().union(*(refusals_of(each.read_text("utf-8")) for each in modules))


def test_every_refusal_of_the_broker_and_of_admission_is_in_a_transcript() -> None:
    assert len(known_refusals()) > 25
    # No kind of record is newer than the first version yet: `unit/cluster/test_versions` plays one.
    assert known_refusals() - {"not_upgraded"} == set[str]().union(*map(codes_of, KINDS))


def test_every_refusal_is_in_the_protocols_table() -> None:
    text = (HERE.parents[1] / "docs" / "PROTOCOL.md").read_text("utf-8")
    table = text.partition("## Refusals")[2].partition("\n## ")[0]
    told = re.findall(r"^\| ([a-z_, ]+) \|", table, re.MULTILINE)
    assert known_refusals() - {code for row in told for code in row.split(", ")} == set()


def test_a_refusal_is_found_in_the_source() -> None:
    source = 'RefusedReply("limit", "x")\nf(RefusedReply(code, ""))\nf("fenced")'
    source += '\nreturn_(RefusedReply("a", "b"))'
    assert refusals_of(source) == {"limit", "a"}
