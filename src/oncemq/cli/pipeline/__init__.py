"""`once pipeline`: a command for each pipeline on Spark."""
