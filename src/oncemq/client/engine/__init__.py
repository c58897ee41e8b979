"""The client's engine: what goes to the server and what comes back, for both shells."""
