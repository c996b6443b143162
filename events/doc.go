// Package events decodes Armada's event sequences into plain Go values.
//
// The contract is events/pb (Armada's field numbers, our package name). Two decoders
// produce the same Sequence. Decoder walks the wire format and extracts only what
// folding needs; evaluators use it. Read uses protobuf-go and keeps everything that the
// contract declares; an ingester decodes each message with it, once. A differential
// test and a fuzz test compare the two.
//
// Invariant: a payload is either a Sequence with queue, job set and at least
// one event, or an *Unreadable with the reason. No input makes a decoder panic.
//
// The package keeps no state between messages, reads no clock, and imports only
// the generated contract from this module.
package events
