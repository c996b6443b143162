// Package policylog reads and writes the policies log: one partition, retained
// forever, whose n-th message is generation n (protocol.md 4). Each generation holds a
// whole policy set, the generation it is based on, and who made it, when and why.
//
// Invariants:
//   - All readers agree on which generations are effective: a generation based on
//     another one is effective only if that is the newest effective one before it.
//     Concurrent writers therefore need only the log: no lock and no leader.
//   - Whether a generation is effective does not depend on the version of the program;
//     whether it is usable does. An unusable generation stops nothing: the previous
//     one stays in force.
//
// entry.go defines the message, shared.go and log.go read the log, store.go writes it: a
// change is durable, and read back, before it is answered.
package policylog
