"""Pipelines on Spark that ship with the product: a command each (`once pipeline`), and a function.

Needs the extra: pip install 'oncemq[spark]'.
"""

from oncemq.spark.runtime.environment import require

require()

from oncemq.spark.pipelines.archive.archive import Archived, archive  # noqa: E402
from oncemq.spark.pipelines.audit.audit import audit  # noqa: E402
from oncemq.spark.pipelines.audit.report import Report  # noqa: E402
from oncemq.spark.pipelines.replay.replay import Replayed, replay  # noqa: E402
from oncemq.spark.pipelines.transform.definition import Definition, Source, Target  # noqa: E402
from oncemq.spark.pipelines.transform.files import pipeline  # noqa: E402
from oncemq.spark.pipelines.transform.transform import Transformed, transform  # noqa: E402

__all__ = [
    "Archived",
    "Definition",
    "Replayed",
    "Report",
    "Source",
    "Target",
    "Transformed",
    "archive",
    "audit",
    "pipeline",
    "replay",
    "transform",
]
