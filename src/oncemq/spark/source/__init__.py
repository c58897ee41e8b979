"""The Spark source: planning by offset ranges on the driver, reading in tasks."""
