package app

import (
	"fmt"

	"github.com/refloat/refloat/internal/evaluator"
)

// SemanticsUsage explains a --semantics flag.
const SemanticsUsage = "activate this version of the decision semantics where the decision log names an earlier one; do it when every evaluator and ingester is upgraded, " +
	"since programs that do not know the version stop, and it is never taken back (default: the version that the log names; a new log begins with the newest)"

// CheckSemantics says what is wrong with a version to activate; 0 is none.
func CheckSemantics(version uint32) error {
	if version > evaluator.SemanticsVersion {
		return fmt.Errorf("version %d: this program knows versions 1 to %d", version, evaluator.SemanticsVersion)
	}
	return nil
}
