"""Topics kept as Parquet or Delta, each message once."""
