// Command evaluator decides the failed runs of an events log that another
// process writes. It is the evaluator half of `refloatctl up`, on the same data
// directory; only one process at a time may run on a directory.
package main

import (
	"os"

	"github.com/refloat/refloat/cmd/internal/program"
	"github.com/refloat/refloat/internal/app"
)

func main() {
	os.Exit(program.Main("evaluator", "Decide the failed runs of an events log", func(c *app.Config) { c.Evaluate = true }))
}
