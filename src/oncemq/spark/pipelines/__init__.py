"""Pipelines on Spark that ship with the product: a command each (`once pipeline`), and a function.

Needs the extra: pip install 'oncemq[spark]'.
"""

from oncemq.spark.runtime.environment import require

require()

from oncemq.spark.pipelines.archives.archive import Archived, archive  # noqa: E402
from oncemq.spark.pipelines.audits.audit import audit  # noqa: E402
from oncemq.spark.pipelines.audits.report import Report  # noqa: E402
from oncemq.spark.pipelines.replays.replay import Replayed, replay  # noqa: E402
from oncemq.spark.pipelines.transforms.definition import Definition, Source, Target  # noqa: E402
from oncemq.spark.pipelines.transforms.files import pipeline  # noqa: E402
from oncemq.spark.pipelines.transforms.transform import Transformed, transform  # noqa: E402

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
