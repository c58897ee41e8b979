"""The end of `once demo`: the topic archived and audited on Spark."""

import json

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from oncemq.cli.main import cli


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_demo_ends_with_the_topic_archived_and_audited(spark: SparkSession) -> None:
    words = "demo --json --messages 90 --publishers 1 --kills 2 --seed 4".split()
    done = CliRunner().invoke(cli, words)
    facts = json.loads(done.stdout)
    assert (done.exit_code, facts["exactly_once"]) == (0, True)
    ending = facts["spark"]
    assert (ending["archived"], ending["files"], ending["findings"]) == (90, 1, 0)
