// Package chain is the decision log's format: records, the envelopes that
// carry them, and the rule by which a reader accepts an envelope.
//
// One partition of the decisions topic is one chain. Correctness rests on the
// log alone (PROTOCOL 1 to 5): of all that owners, slow old owners, clients
// that repeat themselves and strangers write, the first envelope that fits is
// the next one, and everything else is ignored and counted.
//
// The bytes of records and envelopes are the protobuf wire format of
// events/pb/refloat.proto, written by hand so that they have one encoding:
// ascending fields, defaults left out. Links and the running hash are over
// those bytes.
//
// The package is pure: no clock, no I/O, no goroutines.
package chain
