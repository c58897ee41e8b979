"""What every screen of a pipeline takes: a remark, and how far the run is, where that is known."""

import io
from collections.abc import Callable

import pytest

from oncemq.cli.pipeline.running import Terminal
from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession

run = pytest.importorskip("oncemq.spark.pipelines.run", reason="the extra `spark`")

Make = Callable[[io.StringIO], "run.Screen"]


def terminal(shown: io.StringIO) -> Terminal:
    return Terminal(CommandSession(), Progress("archived", shown))


SCREENS: dict[str, Make] = {"blank": lambda shown: run.Blank(), "terminal": terminal}


@pytest.mark.parametrize("name", list(SCREENS))
def test_remarks_and_progress_are_taken_in_any_order(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = io.StringIO()
    screen = SCREENS[name](shown)
    screen.note("it begins: ä \x1b[31m")
    screen.progress(0, None)
    screen.progress(0, 0.0)
    screen.progress(5, 0.5)
    screen.note("half of it")
    screen.progress(5, None)
    screen.progress(10, 1.0)
    screen.progress(9, 1.5)  # more came meanwhile than there was
    out, err = capsys.readouterr()
    assert out == ""  # the answer's alone
    assert (name == "blank") == ("once: half of it" not in err)
