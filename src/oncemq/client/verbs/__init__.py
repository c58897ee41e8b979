"""The verbs of a client as generators that both shells run."""
