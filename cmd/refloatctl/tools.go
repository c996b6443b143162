package main

import "github.com/spf13/cobra"

// newPolicyTools are the commands for people who write policies.
func newPolicyTools() []*cobra.Command {
	return []*cobra.Command{newEval(), newTest(), newInit(), newDiff(), newShadow(), newSchema(), newExplainField()}
}
