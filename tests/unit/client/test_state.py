"""The directory of a client's state, and what lies in it."""

from pathlib import Path

import pytest

from oncemq.client.state.state import open_state
from oncemq.storage.disk import LocalDisk


def test_a_new_directory_is_durable_before_anything_in_it_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(LocalDisk, "sync_directory", lambda _, path: synced.append(path))
    for _ in range(2):
        open_state("ada", tmp_path / "new" / "ada").close()
        assert synced[:2] == [str(tmp_path), str(tmp_path / "new")]
