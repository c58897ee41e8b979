// etcd as its authors ship it, built from the module proxy: for tests that kill it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
