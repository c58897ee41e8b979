"""For operators: accepting a lost history, one question to a server, reading whole topics."""
