// Package events reads Armada's event sequences and says what is in them in
// plain Go values.
//
// The contract is events/pb (Armada's field numbers, our package name). Two
// decoders produce the same Sequence: Reference, by protobuf-go, and Decoder,
// which walks the wire and takes only what folding needs. A differential test
// and a fuzz test hold them together.
//
// Invariant: a payload is either a Sequence with queue, job set and at least
// one event, or an *Unreadable with the reason. Nothing panics, whatever the
// bytes are.
//
// The package keeps no state between messages, reads no clock and imports
// nothing of ours but the generated contract.
package events
