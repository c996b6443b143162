// Package audit examines histories with the same Step that decides live. It replays
// (decides a history again), verifies (checks that the decision log follows from its
// input), and renders decisions for programs and people.
//
// It only reads logs and changes nothing.
package audit
