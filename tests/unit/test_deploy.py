"""The files in `deploy`, as far as they can be looked at without the machines they are for."""

import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from oncemq.cli.main import cli
from oncemq.config import SETTINGS, load

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVERS = ["server-1", "server-2", "server-3"]
MEMBERS = ["etcd-1", "etcd-2", "etcd-3"]


def unit(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment]
    found.read(path)
    return found


def variables(path: Path) -> dict[str, str]:
    lines = [each for each in path.read_text().splitlines() if each and not each.startswith("#")]
    return dict(each.split("=", 1) for each in lines)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())


def must_be_an_invocation(words: list[str]) -> None:
    """Each option of a command of `once` is there."""
    context = click.Context(cli, info_name="once")
    found: click.Command = cli
    while isinstance(found, click.Group):
        following = found.get_command(context, words[0])
        assert following is not None, words
        found, words = following, words[1:]
    options = {name for param in found.get_params(context) for name in param.opts}
    used = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert set(used) <= options, words


def commands_in(path: Path) -> Iterator[list[str]]:
    """What a text says about `once`, as words."""
    for line in path.read_text().splitlines():
        if found := re.search(
            r"(?<![\w/-])(?:/opt/oncemq/bin/)?once ((?:[a-z]+ )+--.*|serve.*)", line
        ):
            yield found[1].strip("`,.").split("`")[0].split()


def test_both_units_are_there() -> None:
    assert [path.name for path in UNITS] == ["oncemq-etcd.service", "oncemq.service"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_restarted_stopped_in_time_and_shut_in(path: Path) -> None:
    service = unit(path)["Service"]
    assert service["Restart"] == "always"
    assert int(service["TimeoutStopSec"]) >= 30
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert (DEPLOY / "systemd" / Path(service["EnvironmentFile"]).name).exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_units(path: Path, tmp_path: Path) -> None:
    """The programs are replaced by one that is here: else that is all it complains about."""
    for each in UNITS:
        text = re.sub(
            r"^ExecStart=\S+", f"ExecStart={sys.executable}", each.read_text(), flags=re.MULTILINE
        )
        (tmp_path / each.name).write_text(text)
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    mine = [line for line in said.stderr.splitlines() if path.name in line]
    assert mine == []


def test_the_units_command_and_its_settings_are_there() -> None:
    words = unit(DEPLOY / "systemd" / "oncemq.service")["Service"]["ExecStart"].split()
    assert words[0].endswith("/once")
    must_be_an_invocation(words[1:])
    given = variables(DEPLOY / "systemd" / "oncemq.env")
    assert load({}, environ=given | {"HOME": "/"}).server_id == "s1"


def test_exit_codes_that_a_person_has_to_look_at_end_it() -> None:
    service = unit(DEPLOY / "systemd" / "oncemq.service")["Service"]
    assert service["RestartPreventExitStatus"].split() == ["2", "7"]


def test_compose_has_three_of_each_with_volumes_and_health_checks(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert sorted(services) == [*MEMBERS, *SERVERS]
    volumes = [volume.partition(":")[0] for each in services.values() for volume in each["volumes"]]
    assert sorted(volumes) == sorted(compose["volumes"]) == [*MEMBERS, *SERVERS]
    assert all(each["healthcheck"]["test"][0] == "CMD" for each in services.values())


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_of_compose_is_one_that_starts(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    must_be_an_invocation(service["command"])
    must_be_an_invocation(service["healthcheck"]["test"][2:])
    given = {key: str(value) for key, value in service["environment"].items()}
    config = load({"bind": "tcp://0.0.0.0:5556"}, environ=given | {"HOME": "/"})
    assert config.advertise == f"tcp://{name}:5556"
    assert [each.split("//")[1].split(":")[0] for each in config.etcd] == MEMBERS


def test_each_server_and_each_member_has_a_name_of_its_own(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert [services[each]["environment"]["ONCEMQ_SERVER_ID"] for each in SERVERS] == [
        "s1", "s2", "s3",
    ]  # fmt: skip
    assert [services[each]["environment"]["ETCD_NAME"] for each in MEMBERS] == MEMBERS


def test_what_the_texts_say_about_commands_is_there() -> None:
    texts = [DEPLOY / "README.md", DEPLOY / "compose" / "compose.yaml", *UNITS]
    found = [words for path in texts for words in commands_in(path)]
    assert len(found) >= 2
    for words in found:
        must_be_an_invocation(words)


def test_every_variable_is_a_setting() -> None:
    known = {"ONCEMQ_" + name.upper() for name in SETTINGS}
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        assert set(re.findall(r"\bONCEMQ_[A-Z_]+", path.read_text())) <= known, path
