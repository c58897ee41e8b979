"""Orders joined with their payments, two topics into Parquet, by a Python function.

once pipeline transform examples/spark/paid.py
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from oncemq.spark.pipelines import Source, Target, pipeline


@pipeline(
    sources={
        "orders": Source(
            topic="orders",
            schema="id bigint, item string, at timestamp",
            watermark="at",
            delay="1 hour",
        ),
        "payments": Source(
            topic="payments",
            schema="order bigint, cents bigint, paid timestamp",
            watermark="paid",
            delay="1 hour",
        ),
    },
    target=Target(path="paid"),
)
def paid(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Within a day after the order, or never: Spark may forget what is older."""
    within = expr("id = order AND paid >= at AND paid <= at + INTERVAL 1 DAY")
    return orders.join(payments, within).select("id", "item", "cents", "at", "paid")
