"""Apps: decorated handlers, retries, dead letters. Users hold `oncemq.App`."""
