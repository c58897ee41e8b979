"""The example of a Spark Declarative Pipeline, as `make demo-declarative` runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.quick_spark import quick_spark

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

DEMO = Path(__file__).parents[2] / "examples/spark/declarative/demo.py"


def test_a_declared_pipeline_run_twice_puts_each_order_once() -> None:
    environment = {**os.environ, **quick_spark()}
    done = subprocess.run([sys.executable, DEMO], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "each dear order once"
