"""Spark: topics as tables and streams, read and written exactly once, without a JAR.

    import oncemq.spark
    spark = oncemq.spark.session()
    spark.readStream.format("oncemq").option("subscribe", "orders").load()

Needs the extra: pip install 'oncemq[spark]'.
"""

from oncemq.spark.runtime.environment import package_zip
from oncemq.spark.source.behind import lag
from oncemq.spark.spark_session import register, session

__all__ = ["lag", "package_zip", "register", "session"]
