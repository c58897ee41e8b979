"""Found by Spark by its name: `spark.read.format("oncemq")` works without a word more."""

from oncemq.spark.source.source import OnceMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
