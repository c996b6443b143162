// Package plural writes counts of things in English. It is pure.
package plural

import "fmt"

// Of returns a count with its noun: "1 file", "2 files". A plural that does not just
// add an s is passed too.
func Of[N int | int64 | uint64](n N, one string, many ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(many) > 0:
		return fmt.Sprintf("%d %s", n, many[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}
