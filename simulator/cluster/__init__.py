"""Three servers of a cluster in simulated time: the shipped replicas, over a model of etcd."""
