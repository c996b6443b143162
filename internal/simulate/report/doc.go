// Package report writes the results of simulations as one HTML page: pictures in SVG, each with a text
// alternative and its numbers, and the comparison of the candidates.
//
// Invariant: the bytes are a function of the results. The page has no scripts and loads nothing; names are
// escaped, since they come from users.
package report
