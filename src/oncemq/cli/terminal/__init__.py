"""What commands share: the session, output, progress, failures in words."""
