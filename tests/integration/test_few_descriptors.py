"""A process that may open no more files: a client and a server say so, and the process lives.

libzmq would abort it, or wait for ever, when its own threads find no descriptor.
"""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from oncemq import Client, StorageRefused
from tests.integration.lone import alone

LEFT = (0, 3, 6, 8, 10, 12, 14, 16, 18)

# For each number: so many descriptors are left, then all of them are free again.
OPENING = """
    import os, resource, sys
    from oncemq import Client, OnceMQError
    server, state, mode, *numbers = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
    taken = []
    def take():
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
    def free(count):
        for _ in range(count):
            os.close(taken.pop())
    def opened():
        return Client(server, id="shop" if mode == "lasting" else None, state=state, timeout=10)
    with opened() as client:
        client.subscribe("orders")
    for left in map(int, numbers):
        take()
        free(left)
        try:
            with opened() as client:
                client.subscribe("orders")
                print("opened")
        except OnceMQError as error:
            print(error.code, str(error))
        free(len(taken))
        with opened() as client:
            client.subscribe("orders")
            client.put("orders", b"1")
            assert client.get("orders")
"""


@pytest.mark.parametrize("mode", ["lasting", "anonymous"])
def test_a_client_is_refused_in_words_and_opens_when_there_is_room_again(
    server: str, tmp_path: Path, mode: str
) -> None:
    told = alone(OPENING, server, str(tmp_path / "state"), mode, *map(str, LEFT))
    assert len(told) == len(LEFT)
    codes = {each.split()[0] for each in told}
    assert codes <= {"too_many_files", "storage_refused", "opened"}
    assert mode == "lasting" or told[-1] == "opened"
    for each in told:
        assert not each.startswith("too_many_files") or "raise the limit (ulimit -n)" in each


@pytest.mark.parametrize("limit", [12, 28, 44])
def test_a_server_is_refused_in_words(tmp_path: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "oncemq", "serve", "--data", str(tmp_path / "data"), "--bind",
         "tcp://127.0.0.1:*"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert "open files" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_directory_that_cannot_be_made_is_told_in_words(
    server: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageRefused, match=r"state directory .* could not be opened"):
        Client(server, id="shop", state=tmp_path / "file" / "state")
