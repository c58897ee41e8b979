"""What went wrong within Spark, as the error it was: not the page of Java around it."""

import re

from oncemq import errors
from oncemq.errors import OnceMQError

# As a traceback of Python ends: an error of ours, or any.
OURS = re.compile(r"^\s*oncemq\.[\w.]*?(\w+): (.+?)\s*$", re.MULTILINE)
ANY = re.compile(r"^\s*((?:\w+\.)*\w+(?:Error|Exception): .+?)\s*$", re.MULTILINE)


class SparkFailed(OnceMQError):
    """A query of a pipeline failed."""

    code = "spark_failed"


def failed(error: BaseException) -> OnceMQError:
    """The error of ours that made Spark fail, if there is one; else Python's, or Spark's own."""
    text = str(error)
    if ours := OURS.findall(text):
        name, detail = ours[-1]
        return getattr(errors, name, SparkFailed)(detail)
    _, traced, trace = text.partition("Traceback (most recent call last)")
    found = ANY.findall(trace) if traced else []
    return SparkFailed(f"Spark failed: {found[-1] if found else text.strip().splitlines()[0]}")
