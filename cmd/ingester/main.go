// Command ingester writes events and decisions into the job database: the
// ingester half of `refloatctl up`, on the same data directory.
package main

import (
	"os"

	"github.com/refloat/refloat/cmd/internal/program"
	"github.com/refloat/refloat/internal/node"
)

func main() {
	os.Exit(program.Main("ingester", "Write events and decisions into the job database", func(c *node.Config) { c.Ingest = true }))
}
