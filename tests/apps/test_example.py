"""The example project: its own tests, run as its own project would run them."""

import json
import os
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from oncemq import Client, testing

ROOT = Path(__file__).parents[2]
PLUGIN = "oncemq.testing.plugin"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_tests_of_the_shop_pass(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shutil.copytree(ROOT / "examples" / "shop", shop)
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:asyncio"],
        cwd=shop,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


@pytest.mark.timeout(60)
def test_the_relay_of_the_shop_goes_where_the_app_was_told_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`once run --server` names another server than the code does."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "shop"))
    worker = import_module("shop.worker")
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        del sys.modules[name]  # other tests have modules of that name
    app = worker.make_app("tcp://127.0.0.1:1", tmp_path / "shop.db")  # nobody is there
    app.state = tmp_path / "state"
    with testing.server() as address, app.running(server=address), Client(address) as client:
        order = {"number": 1, "guest": "ada@example.org", "product": "tea", "cups": 1}
        client.put("orders", json.dumps(order).encode())
        deadline = time.monotonic() + 30
        while client.topic("bills").topic.end == 0:  # the bill came by the relay
            assert time.monotonic() < deadline, "no bill came"
            time.sleep(0.02)
    assert app.server == address
    assert repr(app) == "<App 'shop' handlers: orders, bills>"
