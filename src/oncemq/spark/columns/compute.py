# pyright: basic
# pyarrow carries no types.
"""Arrow's functions, without what their module costs: it makes a wrapper of each when imported.

Spark starts several Python processes for a query, and most of them only plan: those never get
here. Law: `pyarrow.compute` is imported where rows are, and not before.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def call(function: str, arguments: Sequence[Any]) -> pa.Array:
    """The array that one of Arrow's functions makes of these."""
    from pyarrow.compute import call_function

    return call_function(function, list(arguments))
