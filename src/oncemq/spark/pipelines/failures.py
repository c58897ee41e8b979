"""What went wrong within Spark, as the error it was: not the page of Java around it."""

import re

from oncemq import errors
from oncemq.errors import OnceMQError

OURS = re.compile(r"^\s*oncemq\.[\w.]*?(\w+): (.+?)\s*$", re.MULTILINE)  # as a traceback ends


class SparkFailed(OnceMQError):
    """A query of a pipeline failed."""

    code = "spark_failed"


def failed(error: BaseException) -> OnceMQError:
    """The error of ours that made Spark fail, if there is one; else Spark's first line."""
    text = str(error)
    found = OURS.findall(text)
    if not found:
        return SparkFailed(f"Spark failed: {text.strip().partition(chr(10))[0]}")
    name, detail = found[-1]
    kind = getattr(errors, name, SparkFailed)
    return kind(detail)
