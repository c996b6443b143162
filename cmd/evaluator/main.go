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
	var f flags
	os.Exit(program.Main(&program.Program{
		Name: "evaluator", Short: "Decide the failed runs of an events log", NeedsData: true,
		Bind: f.bind, Complete: f.complete, Run: app.RunEvaluator,
	}))
}
