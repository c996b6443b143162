// Command ingester writes events and decisions into the job database. It is the
// ingester half of `refloatctl up`, on the same data directory.
package main

import (
	"os"

	"github.com/refloat/refloat/cmd/internal/program"
	"github.com/refloat/refloat/internal/app"
)

func main() {
	os.Exit(program.Main("ingester", "Write events and decisions into the job database", func(c *app.Config) { c.Ingest = true }))
}
