// Package events decodes Armada's event sequences into plain Go values.
//
// The contract is events/pb (Armada's field numbers, our package name). Decoder walks the
// wire format and extracts only what folding needs, of what protobuf-go accepts; a
// differential test and a fuzz test compare the two. An ingester, which needs more of some
// events, gets a Message from Read, which decodes those with protobuf-go.
//
// Invariant: a payload is either a Sequence with queue, job set and at least
// one event, or an *Unreadable with the reason. No input makes a decoder panic.
//
// The package keeps no state between messages, reads no clock, and imports only
// the generated contract from this module.
package events
