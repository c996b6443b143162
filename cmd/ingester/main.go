// Command ingester writes events and decisions into the job database. It is the
// ingester half of `refloatctl up`, on the same data directory.
package main

import (
	"os"

	"github.com/refloat/refloat/cmd/internal/program"
	"github.com/refloat/refloat/internal/app"
)

func main() {
	var f flags
	os.Exit(program.Main(&program.Program{
		Name: "ingester", Short: "Write events and decisions into the job database",
		Bind: f.bind, Complete: f.complete, Run: app.RunIngester,
	}))
}
