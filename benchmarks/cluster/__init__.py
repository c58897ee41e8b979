"""Three servers of OnceMQ beside one, and beside its peers with three replicas: `PART=cluster`."""
