// Package lint finds policies that are allowed but almost certainly mistakes, within
// one rule, between the rules of a policy, and between the policies of a queue.
//
// It reports only what follows from semantics.md for every possible failure: a rule that
// it reports as shadowed is never reached, and one that it reports as never matching
// never matches. The converse does not hold: it does not detect that two different
// regular expressions are equivalent. The effective values of a rule after inheritance
// come from the policy.Set that decides; nothing is computed twice.
//
// It also holds the table of all problem codes, and writes SARIF.
package lint
