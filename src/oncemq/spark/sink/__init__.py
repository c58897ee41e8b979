"""The Spark sink: rows staged by tasks, published by the driver in one commit."""
