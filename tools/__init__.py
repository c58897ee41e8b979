"""What the project's own people run: not part of the package, not part of CI."""
