"""The kept inputs of the fuzz targets, replayed without atheris."""

import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from oncemq.storage.segments.framing import Frame
from oncemq.wire import batch, codec
from simulator import proof

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))  # scripts, not a package
kept: Any = import_module("kept")
DONE: Counter[str] = import_module("damage").DONE
TARGETS: dict[str, Callable[[bytes], None]] = import_module("targets").TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_every_kept_input_is_returned_from(target: str) -> None:
    inputs = kept.corpus(target)
    assert inputs
    DONE.clear()
    with proof.campaign(f"corpus-{target}") as tally:
        for data in inputs:
            try:
                TARGETS[target](data)
            except BaseException as error:
                error.add_note(f"the input is {data.hex()}")
                raise
            tally.add("inputs")
        for fault, times in DONE.items():
            tally.fault(fault, times)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 64], ids=["none", "zero", "ones"])
def test_every_target_takes_any_bytes(target: str, data: bytes) -> None:
    TARGETS[target](data)


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_found_and_not_mended_yet_is_still_so(target: str) -> None:
    for name, data in kept.found(target):
        raised = ""
        try:
            TARGETS[target](data)
        except Exception as error:
            raised = type(error).__name__
        assert raised, f"mended: move {data.hex()} from fuzz/found to fuzz/corpus/{target}.txt"
        assert raised == name


# ------------------------------------------------------------------ the targets can fail


def test_the_codec_target_sees_an_error_that_is_let_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "UNDECODABLE", ())
    assert fails("codec")


def test_the_batch_target_sees_a_cut_at_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = batch.cut
    monkeypatch.setattr(
        batch, "cut", lambda *args, start, stop: cut(*args, start=0, stop=stop - start)
    )
    assert fails("batch")


def test_the_recovery_target_sees_a_body_that_nobody_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Frame, "holds", lambda *_: True)
    assert fails("recovery")


def fails(target: str) -> bool:
    """Whether some kept input makes the target raise."""
    for data in kept.corpus(target):
        try:
            TARGETS[target](data)
        except Exception:
            return True
    return False
