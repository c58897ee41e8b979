"""An archive put back into topics, each message once."""
