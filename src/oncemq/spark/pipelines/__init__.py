"""Pipelines on Spark that ship with the product: a command each (`once pipeline`), and a function.

Needs the extra: pip install 'oncemq[spark]'.
"""

from oncemq.spark.launch import require

require()

from oncemq.spark.pipelines.archiving import Archived, archive  # noqa: E402
from oncemq.spark.pipelines.audit_report import Report  # noqa: E402
from oncemq.spark.pipelines.auditing import audit  # noqa: E402
from oncemq.spark.pipelines.replaying import Replayed, replay  # noqa: E402
from oncemq.spark.pipelines.transform_definition import Definition, Source, Target  # noqa: E402
from oncemq.spark.pipelines.transform_files import pipeline  # noqa: E402
from oncemq.spark.pipelines.transforming import Transformed, transform  # noqa: E402

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
