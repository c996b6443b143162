// Package chain defines the decision log's format: records, the envelopes that
// carry them, and the rule by which a reader accepts an envelope.
//
// One partition of the decisions topic is one chain. Correctness depends on the log
// alone (protocol.md 1 to 5, docs/reference/protocol.md): whatever is written by owners, slow
// former owners, clients that retry and foreign producers, the first envelope that
// fits is the next one, and everything else is ignored and counted.
//
// The bytes of records and envelopes are the protobuf wire format of
// events/pb/refloat.proto, encoded by hand so that the encoding is unique: fields in
// ascending order, defaults omitted. Links and the running hash cover these bytes.
//
// The package is pure: no clock, no I/O, no goroutines.
package chain
