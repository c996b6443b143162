package main

import "github.com/spf13/cobra"

// newPolicyTools returns the commands for authors of policies.
func newPolicyTools() []*cobra.Command {
	return []*cobra.Command{newEval(), newTest(), newInit(), newDiff(), newShadow(), newSchema(), newExplainField()}
}
