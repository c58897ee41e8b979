"""Commands about messages: put, get, listen, subscribe."""
