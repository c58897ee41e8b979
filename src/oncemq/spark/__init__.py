"""Spark: topics as tables and streams, read and written exactly once, without a JAR.

    import oncemq.spark
    spark = oncemq.spark.session()
    spark.readStream.format("oncemq").option("subscribe", "orders").load()

Needs the extra: pip install 'oncemq[spark]'.
"""

from oncemq.spark.runtime.session import package_zip, register, session
from oncemq.spark.source.behind import lag

__all__ = ["lag", "package_zip", "register", "session"]
