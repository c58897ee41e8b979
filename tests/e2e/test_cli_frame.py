"""The command line without a server: help, usage, settings, completion, what is imported."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncemq.cli.main import COMMANDS, cli

BUILT = [name for name in COMMANDS if name not in ("bench", "audit", "demo")]


@pytest.fixture(autouse=True)
def as_a_user_without_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "Ada Lovelace")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "ONCEMQ_SERVER"):
        monkeypatch.delenv(name, raising=False)


def once(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environ)


# ------------------------------------------------------------------ help


@pytest.mark.parametrize("name", BUILT)
def test_every_command_explains_itself_and_takes_the_global_options(name: str) -> None:
    result = once(name, "--help")
    assert result.exit_code == 0
    for option in "--server --id --state --timeout --config --json --version --help".split():
        assert option in result.stdout


@pytest.mark.parametrize("name", BUILT)
def test_the_table_of_commands_names_what_is_there(name: str) -> None:
    loaded = cli.get_command(cli.make_context("once", ["--help"], resilient_parsing=True), name)
    assert loaded is not None
    assert loaded.name == name


def test_the_help_lists_the_exit_codes() -> None:
    shown = once("--help").stdout
    assert re.findall(r"(?<= )([0-7])  ", shown) == ["0", "1", "2", "5", "3", "6", "4", "7"]


# ------------------------------------------------------------------ usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["put"], "missing argument 'TOPIC'"),
        (["puts"], "no command 'puts'; did you mean 'put'?"),
        (["put", "t", "-5"], "once put TOPIC -- -5"),
        (["put", "t", "a", "--lines"], "one of them"),
        (["put", "t", "--lines", "--key", "k"], "not with --lines"),
        (["put", "t", "a", "--header", "novalue"], "'novalue' is not NAME=VALUE"),
        (["put", "t", "--file", "gone"], "'gone' does not exist"),
        (["put", "t", "a", "--state", "s"], "name the client with --id"),
        (["get", "-n", "0"], "0 is not in the range"),
        (["get", "--wait", "soon"], "'soon' is not a duration"),
        (["subscribe", "t", "--from", "never"], "'never' is not a start"),
        (["unsubscribe"], "name one TOPIC, or say --all"),
        (["unsubscribe", "t", "--all"], "name one TOPIC, or say --all"),
        (["listen"], "missing argument 'TOPIC...'"),
        (["flush"], "--id ID"),
        (["topic", "create", "t", "--retain", "7"], "does not say what to retain"),
        (["topic", "create", "t", "--retain", "7d,8d"], "does not say what to retain"),
        (["topic", "create", "t", "--retain", "forever,7d"], "is not a duration"),
        (["topic", "create", "t", "--retain", "0d"], "does not say what to retain"),
        (["topic", "config", "t"], "missing option '--retain'"),
        (["topic", "delete", "t"], "say --yes"),
        (["status", "--server", "nowhere"], "'nowhere' is not an address"),
        (["status", "--timeout", "0"], "leaves no time"),
        (["status", "--config", "gone.toml"], "cannot read the settings in gone.toml"),
        (["serve", "--sync", "never"], "'never' is not a way to sync"),
    ],
    ids=" ".join,
)
def test_wrong_usage_says_what_is_wrong_and_ends_with_2(arguments: list[str], said: str) -> None:
    result = once(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr
    assert result.stderr.startswith("once: ")
    assert len(result.stderr.splitlines()) <= 2


def test_an_error_is_an_object_too_for_programs() -> None:
    result = once("status", "--json", "--timeout", "0")
    said = "flag --timeout: '0' leaves no time for an answer; give at least 1ms"
    assert result.stderr.splitlines()[0] == f"once: {said}"
    assert json.loads(result.stderr.splitlines()[-1]) == {"error": "config", "detail": said}


def test_without_a_command_the_help_comes_on_stderr() -> None:
    result = once()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Commands:" in result.stderr


# ------------------------------------------------------------------ settings


def test_config_shows_each_setting_its_value_and_where_it_comes_from() -> None:
    Path("oncemq.toml").write_text('segment_bytes = "1MiB"')
    lines = once("config", "--timeout", "3s", ONCEMQ_SYNC="interval:50").stdout.splitlines()
    rows = {line.split()[0]: re.split(r" {2,}", line)[1:] for line in lines[1:]}
    assert rows["timeout"] == ["3s", "flag --timeout"]
    assert rows["sync"] == ["interval:50", "variable ONCEMQ_SYNC"]
    assert rows["segment_bytes"] == ["1MiB", "file oncemq.toml"]
    assert rows["disk_max"] == ["none", "default"]
    assert rows["id"][0].startswith("Ada-Lovelace@")


def test_a_global_option_means_the_same_before_and_after_the_command() -> None:
    before = once("--id", "billing", "--json", "config")
    after = once("config", "--id", "billing", "--json")
    assert before.stdout == after.stdout
    assert json.loads(after.stdout)["id"]["value"] == "billing"


def test_the_settings_in_json_have_stable_keys() -> None:
    shown = json.loads(once("config", "--json").stdout)
    assert (
        list(shown)
        == (
            "server id state timeout data bind feed cluster etcd etcd_program server_id "
            "advertise retry sync segment_bytes disk_max message_max batch_max idempotency_ttl "
            "idempotency_keys_max stage_ttl stages_max stage_bytes_max clients_max "
            "producers_max connections_max handshakes_max handshake_time unfinished_max "
            "unfinished_time owed_pause owed_max owed_total_max owed_time feed_owed_max "
            "subjects_max subjects_total_max request_entries_max gathered_max held_answers_max "
            "turn_requests turn_bytes turn_micros files_kept log_level log_format"
        ).split()
    )
    assert shown["server"] == {
        "value": ["tcp://127.0.0.1:5556"],
        "origin": "default",
        "about": "addresses of the server, tried in turn",
    }


# ------------------------------------------------------------------ completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(shell: str) -> None:
    result = once("completion", shell)
    assert result.exit_code == 0
    assert f"_ONCE_COMPLETE={shell}_complete" in result.stdout


def complete(words: str) -> list[str]:
    environ = {
        "_ONCE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "ONCEMQ_SERVER": "tcp://127.0.0.1:1",
    }
    result = once(**environ)
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_commands_and_options_are_completed() -> None:
    assert complete("once sub") == ["subscribe", "subscriptions"]
    assert complete("once put --h") == ["--header", "--help"]


def test_topics_are_not_completed_and_nothing_is_said_when_no_server_answers() -> None:
    assert complete("once put or") == []


# ------------------------------------------------------------------ what is imported


def test_a_put_imports_no_other_command_and_nothing_of_the_server() -> None:
    code = (
        "import sys; from oncemq.cli.main import cli\n"
        "try: cli.main(['put', '--help'])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    ours = {name for name in loaded if name.startswith("oncemq.")}
    commands = {f"oncemq.cli.{module}" for module, _ in COMMANDS.values()}
    assert commands & ours == {"oncemq.cli.messages.put"}
    assert not {name for name in ours if name.startswith(("oncemq.server", "oncemq.assembly"))}
    assert not {"tomllib", "difflib", "unittest", "asyncio"} & loaded
