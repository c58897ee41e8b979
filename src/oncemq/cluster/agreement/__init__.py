"""One server's part in what the cluster agrees on: keys of etcd, and what it wants of them."""
