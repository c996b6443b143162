package app

import (
	"fmt"

	"github.com/refloat/refloat/internal/evaluator"
)

// SemanticsUsage documents a --semantics flag.
const SemanticsUsage = "activate this version of the decision semantics if the decision log names an earlier one. Do this after every evaluator and ingester is upgraded: " +
	"programs that do not know the version stop, and the activation cannot be undone (default: the version that the log names; a new log begins with the newest)"

// CheckSemantics returns an error for a version that cannot be activated; 0 is none.
func CheckSemantics(version uint32) error {
	if version > evaluator.SemanticsVersion {
		return fmt.Errorf("version %d: this program knows versions 1 to %d", version, evaluator.SemanticsVersion)
	}
	return nil
}
