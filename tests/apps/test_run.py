"""`once run MODULE:APP`: a process, its signals, and what it says when it cannot run."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result

from oncemq import Client
from oncemq.cli.main import cli
from tests.e2e.conftest import ONCE, first_line
from tests.e2e.processes import until

SHOP = """
    import pathlib, time
    from oncemq import App, Message

    app = App(id="shop")
    unrelated = 7
    here = pathlib.Path(__file__).parent

    @app.handler("orders")
    def handle(order: str, message: Message) -> None:
        (here / "begun").touch()
        while order == "slow" and not (here / "go_on").exists():
            time.sleep(0.005)
        with open(here / "handled", "a") as file:
            file.write(message.id + chr(10))
"""

Connect = Callable[..., Client]


@pytest.fixture
def mq(oncemq_client: Connect) -> Client:
    return oncemq_client()


@pytest.fixture
def shop(mq: Client, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The app as a process, ready; it finds its server by ONCEMQ_SERVER."""
    (tmp_path / "shop.py").write_text(dedent(SHOP))
    process = subprocess.Popen(
        [*ONCE, "run", "shop:app"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
    )
    try:
        line = first_line(process)
        assert line == "once run: shop is ready; handlers: shop.orders"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_signal_lets_it_finish_the_message_in_hand(
    shop: subprocess.Popen[bytes], mq: Client, tmp_path: Path
) -> None:
    mq.put("orders", b"slow")
    mq.put("orders", b"next")
    until((tmp_path / "begun").exists)
    shop.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        shop.wait(0.3)
    (tmp_path / "go_on").touch()
    _, told = shop.communicate(timeout=30)
    assert shop.returncode == 0, told
    assert (tmp_path / "handled").read_text() == "orders@0\n"
    (found,) = mq.subscriptions(client="shop.orders")
    assert found.cursor == 1
    assert b"app stopped app=shop" in told


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    shop: subprocess.Popen[bytes], mq: Client, tmp_path: Path, number: signal.Signals
) -> None:
    mq.put("orders", b"slow")
    until((tmp_path / "begun").exists)
    shop.send_signal(number)
    assert shop.stderr is not None
    told = b""
    while b"app stops app=shop" not in told:
        told += shop.stderr.readline()

    def told_again() -> bool:
        shop.send_signal(number)
        return shop.poll() is not None

    until(told_again)
    assert shop.returncode == -number
    (found,) = mq.subscriptions(client="shop.orders")
    assert found.cursor == 0, "the message in hand comes again"


@pytest.mark.slow
def test_one_ctrl_c_that_comes_twice_is_one(
    shop: subprocess.Popen[bytes], mq: Client, tmp_path: Path
) -> None:
    mq.put("orders", b"slow")
    until((tmp_path / "begun").exists)
    assert shop.stderr is not None
    for _ in range(2):  # from the terminal, and from a parent that passes it on
        shop.send_signal(signal.SIGINT)
    told = b""
    while b"app stops app=shop" not in told:
        told += shop.stderr.readline()
    shop.send_signal(signal.SIGINT)
    (tmp_path / "go_on").touch()
    assert shop.wait(30) == 0
    assert (tmp_path / "handled").read_text() == "orders@0\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose modules are imported for this test alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("ONCEMQ_SERVER", raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("shop"):
            del sys.modules[name]


def run_in(directory: Path, source: str, *arguments: str) -> Result:
    (directory / "shop.py").write_text(dedent(source))
    return CliRunner().invoke(cli, ["run", *arguments])


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        (SHOP, ["shap:app"], "there is no module 'shap' in"),
        (SHOP, ["shop.worker:app"], "there is no module 'shop.worker' in"),
        (SHOP, [":app"], "there is no module '' in"),
        (SHOP, ["shop:apq"], "'apq' is not there in 'shop'; there is: shop:app"),
        (SHOP, ["shop:unrelated"], "'unrelated' is no oncemq.App in 'shop'; there is: shop:app"),
        ("x = 1", ["shop"], "'app' is not there in 'shop'"),
        (SHOP, ["shop:app", "--id", "cafe"], "an app has its id in its code"),
        ("import nothing_like_it", ["shop:app"], "imports 'nothing_like_it', which is not there"),
        ("from oncemq import App\napp = App(id='shop')", ["shop"], "app 'shop' has no handlers"),
        (
            SHOP.replace("order: str", "order"),
            ["shop:app"],
            "handler handle does not say what it takes",
        ),
    ],
)
def test_what_cannot_run_says_why(here: Path, source: str, arguments: list[str], said: str) -> None:
    ran = run_in(here, source, *arguments)
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_error_of_the_users_own_module_is_shown_as_it_is(here: Path) -> None:
    ran = run_in(here, "1 / 0", "shop:app")
    assert isinstance(ran.exception, ZeroDivisionError)
