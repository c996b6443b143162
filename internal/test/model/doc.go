// Package model is a second, plain implementation of the specification of
// decisions (docs/reference/semantics.md), and a generator of
// histories to run it on. It is an oracle for tests: written from the
// specification alone, in the most obvious way, sharing no code with the
// engine. Its only import from this module is the wire contract.
//
// Numbers in comments (§5) are sections of semantics.md. Where the text is ambiguous, a
// comment that begins with READING: names the alternatives.
//
// Groups (version 3) are from semantics.md 12; GROUPS-READINGS.md lists how it is read.
//
// The code favours obviousness over speed: everything is in maps and slices, and
// recomputed by linear scans. It does not model durability, batching, digests of
// policy sets or explanations for people.
package model
