"""The audit's rules computed by Spark, over whole archives and topics."""
