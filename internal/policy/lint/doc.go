// Package lint looks at policies with a mind: what is allowed but can
// hardly be meant, within one rule, between the rules of a policy, and between
// the policies of a queue.
//
// It reports only what follows from SEMANTICS, for every failure that there can
// be: a rule that it calls shadowed is never reached, one that can never match
// never does. The other way round nothing is promised: two regular expressions
// that mean the same in other words are not found out. What a rule says after
// inheritance comes from the policy.Set that decides, never from a second reading.
//
// It also holds the table of all codes of problems, and writes SARIF.
package lint
