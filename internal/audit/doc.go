// Package audit looks at histories after the fact, by the very Step that
// decides live: replay (decide a history afresh), verify (does the decision log
// follow from its input), and how a decision is shown to programs and people.
//
// It changes nothing: it only reads logs.
package audit
