"""What the actors of a world do, by kind of step."""
