"""Settings: which source wins, what each text means, and how a mistake is answered."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq import config
from oncemq.config import Config, load, quantities
from oncemq.errors import ConfigError


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the settings of whoever runs it."""
    monkeypatch.chdir(tmp_path)


def loaded(
    flags: Mapping[str, str | None] | None = None, file: str | None = None, **environ: str
) -> Config:
    return load(flags, file=file, environ={"HOME": "/home/ada", **environ})


def fault(
    flags: Mapping[str, str | None] | None = None, file: str | None = None, **environ: str
) -> str:
    with pytest.raises(ConfigError) as raised:
        loaded(flags, file, **environ)
    return raised.value.detail


# ------------------------------------------------------------------ which source wins


def test_without_any_source_every_setting_has_its_default() -> None:
    assert loaded() == Config(data=Path("/home/ada/.local/share/oncemq"))
    assert {loaded().origin(name) for name in config.SETTINGS} == {"default"}


def test_every_setting_is_a_field_of_the_config_and_the_other_way_round() -> None:
    assert set(config.SETTINGS) == set(Config.__struct_fields__) - {"origins"}


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default() -> None:
    Path("oncemq.toml").write_text('timeout = "1s"\nid = "file"\nsync = "interval:5"\n')
    found = loaded({"timeout": "3s"}, ONCEMQ_TIMEOUT="2s", ONCEMQ_ID="variable")
    assert (found.timeout, found.id, found.sync, found.bind) == (
        3.0,
        "variable",
        "interval:5",
        config.SERVER,
    )
    assert found.origins == {
        "timeout": "flag --timeout",
        "id": "variable ONCEMQ_ID",
        "sync": "file oncemq.toml",
    }
    assert found.origin("bind") == "default"


def test_a_flag_that_was_not_given_and_an_empty_variable_count_for_nothing() -> None:
    assert loaded({"id": None}, ONCEMQ_ID="") == loaded()


def test_the_named_file_beats_the_one_beside_which_beats_the_users_own(tmp_path: Path) -> None:
    users = tmp_path / "xdg" / "oncemq" / "config.toml"
    users.parent.mkdir(parents=True)
    users.write_text('id = "users"')
    home = str(tmp_path / "xdg")
    assert loaded(XDG_CONFIG_HOME=home).id == "users"
    Path("oncemq.toml").write_text('id = "beside"')
    assert loaded(XDG_CONFIG_HOME=home).id == "beside"
    Path("variable.toml").write_text('id = "variable"')
    named = loaded(ONCEMQ_CONFIG="variable.toml", XDG_CONFIG_HOME=home)
    assert named.id == "variable"
    Path("flag.toml").write_text('id = "flag"')
    flagged = loaded(None, "flag.toml", ONCEMQ_CONFIG="variable.toml", XDG_CONFIG_HOME=home)
    assert flagged.id == "flag"


def test_the_data_go_where_the_desktop_says(tmp_path: Path) -> None:
    assert loaded(XDG_DATA_HOME=str(tmp_path)).data == tmp_path / "oncemq"
    assert loaded(XDG_DATA_HOME="relative").data == Path("/home/ada/.local/share/oncemq")


def test_a_relative_path_in_a_file_means_beside_that_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "once.toml").write_text('data = "here"\nstate = "/there"')
    found = loaded(file=str(tmp_path / "etc" / "once.toml"))
    assert (found.data, found.state) == (tmp_path / "etc" / "here", Path("/there"))


def test_a_file_may_use_numbers_and_lists() -> None:
    Path("oncemq.toml").write_text(
        'server = ["tcp://a:1", "tcp://b:2"]\nsegment_bytes = 4096\ntimeout = 2.5'
    )
    found = loaded()
    assert found.server == ("tcp://a:1", "tcp://b:2")
    assert (found.segment_bytes, found.timeout) == (4096, 2.5)


# ------------------------------------------------------------------ what each text means


@pytest.mark.parametrize(
    ("text", "ms"),
    [("10", 10_000), ("500ms", 500), ("5s", 5000), ("1.5h", 5_400_000), (" 7 d ", 604_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert quantities.parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "abc", "-1s", "5 parsecs", "1e9s", "nan", "9999999d"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"duration|hundred years"):
        quantities.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4096", 4096), ("10GiB", 10 << 30), ("1.5mib", 3 << 19), ("1kB", 1000)],
)
def test_sizes(text: str, size: int) -> None:
    assert quantities.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "-1", "10 elephants", "5M", "9999999TiB"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"size|disk"):
        quantities.parse_size(text)


@given(st.integers(0, quantities.DURATION_MS_MAX))
def test_a_duration_is_read_back_as_it_was_written(ms: int) -> None:
    assert quantities.parse_duration(quantities.format_duration(ms)) == ms


@given(st.integers(0, 1 << 52) | st.integers(0, 1 << 20).map(lambda n: n << 40))
def test_a_size_is_read_back_as_it_was_written(size: int) -> None:
    assert quantities.parse_size(quantities.format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "sync", "ms"),
    [("always", "always", 0), ("interval:100", "interval:100", 100), ("INTERVAL:1s", None, 1000)],
)
def test_how_to_sync(text: str, sync: str | None, ms: int) -> None:
    found = loaded({"sync": text})
    assert (found.sync, found.sync_ms) == (sync or f"interval:{ms}", ms)


def test_several_servers_are_tried_in_turn() -> None:
    assert loaded({"server": "tcp://a:1, ipc:///run/b"}).server == ("tcp://a:1", "ipc:///run/b")


def test_an_address_without_a_scheme_is_one_of_tcp() -> None:
    assert loaded({"server": "localhost:5556"}).server == ("tcp://localhost:5556",)
    assert loaded({"bind": "127.0.0.1:*"}).bind == "tcp://127.0.0.1:*"


def test_the_disk_may_be_limited_or_not() -> None:
    assert loaded({"disk_max": "1GiB"}).disk_max == 1 << 30
    assert loaded({"disk_max": "none"}, ONCEMQ_DISK_MAX="1GiB").disk_max is None


# ------------------------------------------------------------------ how a mistake is answered


def test_an_unknown_setting_in_a_file_is_an_error_that_names_the_nearest() -> None:
    Path("oncemq.toml").write_text('sever = "tcp://a:1"')
    assert fault() == "unknown setting 'sever' in oncemq.toml; did you mean 'server'?"


def test_an_unknown_variable_is_an_error_that_names_the_nearest() -> None:
    assert fault(ONCEMQ_SERVR="x") == (
        "unknown variable ONCEMQ_SERVR; did you mean 'ONCEMQ_SERVER'?"
    )


def test_a_variable_that_only_clients_read_is_no_unknown_one() -> None:
    assert loaded(ONCEMQ_BUSY_MICROS="0") == loaded()
    assert fault(ONCEMQ_BUSY_MICRO="0") == (
        "unknown variable ONCEMQ_BUSY_MICRO; did you mean 'ONCEMQ_BUSY_MICROS'?"
    )


def test_what_is_near_nothing_gets_the_whole_list() -> None:
    Path("oncemq.toml").write_text("zzzzzzzz = 1")
    assert fault().endswith("; known: " + ", ".join(config.SETTINGS))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("server", "localhost", "flag --server: 'localhost' is not an address; write it like tcp"),
        ("server", "tcp://a:99999", "flag --server: 'tcp://a:99999' is not an address"),
        ("server", " , ", "flag --server: no address is given"),
        ("server", "tcp://a:*", "flag --server: 'tcp://a:*' has no port to connect to"),
        ("id", "", "flag --id: the client id is empty"),
        ("id", "_system", "flag --id: the client id '_system' starts with '_'"),
        ("id", "a\nb", "flag --id: the client id 'a\\nb' has a control character"),
        ("timeout", "0", "flag --timeout: '0' leaves no time"),
        ("sync", "sometimes", "flag --sync: 'sometimes' is not a way to sync"),
        ("sync", "interval:0", "flag --sync: 'interval:0' is out of range"),
        ("sync", "interval:2m", "flag --sync: 'interval:2m' is out of range"),
        ("data", "a\0b", "flag --data: 'a\\x00b' is not a path: it has a NUL in it"),
        ("state", "~\ud800", "flag --state: '~\\ud800' is not a path"),
        ("segment_bytes", "0", "flag --segment-bytes: '0' leaves no room"),
        ("log_level", "loud", "flag --log-level: 'loud' is not known; choose from debug, info"),
    ],
)
def test_a_wrong_value_says_where_it_is_and_what_to_write(name: str, text: str, said: str) -> None:
    assert fault({name: text}).startswith(said)


def test_a_message_larger_than_any_batch_could_never_be_put() -> None:
    assert fault({"message_max": "2MiB", "batch_max": "1MiB"}) == (
        "message_max is 2MiB, more than batch_max (1MiB); raise that"
    )


@pytest.mark.parametrize("value", ["true", "[1, 2]", "{ a = 1 }", "1979-05-27"])
def test_a_file_with_a_value_of_the_wrong_kind_is_refused(value: str) -> None:
    Path("oncemq.toml").write_text(f"timeout = {value}")
    assert fault().startswith("timeout in oncemq.toml must be text or a number, not ")


def test_a_file_that_is_not_toml_is_refused_with_the_place() -> None:
    Path("oncemq.toml").write_text("server =\n")
    assert "oncemq.toml is not TOML" in fault()
    assert "line 1" in fault()


def test_a_named_file_that_is_not_there_is_an_error() -> None:
    assert fault(file="gone.toml") == (
        "cannot read the settings in gone.toml: No such file or directory"
    )


def test_a_wrong_value_is_an_error_even_when_a_stronger_source_hides_it() -> None:
    assert fault({"timeout": "5s"}, ONCEMQ_TIMEOUT="soon").startswith("variable ONCEMQ_TIMEOUT: ")


def test_times_that_keys_and_stages_are_kept_have_a_least_value() -> None:
    config = load({"idempotency_ttl": "30d", "stage_ttl": "2h", "stages_max": "5_000"}, environ={})
    assert (config.idempotency_ttl, config.stage_ttl, config.stages_max) == (2_592_000, 7_200, 5000)
    assert "at least a day" in fault({"idempotency_ttl": "1h"})
    assert "at least 1m" in fault({"stage_ttl": "1s"})
    assert "from 1 to" in fault({"idempotency_keys_max": "none"})
