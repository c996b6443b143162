// Package policylog reads and writes the policies log: one partition, kept for
// ever, whose n-th message is generation n (PROTOCOL 4). Each generation holds a
// whole policy set, who made it of which one, when and why.
//
// What must hold:
//   - Every reader agrees which generations count: one that names what it was made
//     of counts only where that is the newest before it. So a log is all that
//     writers at once need; no lock, no leader.
//   - Whether a generation counts does not depend on the version of the program;
//     whether it can be used does. What cannot be used stops nothing: the one
//     before stays in force.
//
// entry.go has the message, log.go its reader, store.go the writer: a change is
// durable, and read back, before it is answered.
package policylog
