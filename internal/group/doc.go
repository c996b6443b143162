// Package group is the state of one group of jobs, and what of it follows from a group's
// shape alone (semantics.md 12): who is a member, who may start, which units have succeeded, and
// when the group is over. It is pure, and knows neither policies in force nor runs:
// package projection keeps these states, and says what happens to them.
package group
