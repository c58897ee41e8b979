"""`once repair`: what is damaged in a data directory, whose it was, and how to go on."""
