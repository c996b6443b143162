// Package pulsarlog is the log on Apache Pulsar: one partitioned topic, its
// partitions read by exact position and appended by one exclusive publisher.
//
// Invariants:
//   - A reader gives each message once, in log order. What the client would
//     leave out (after a reconnect, of a batch or chunked message that it cannot
//     decode, or because the broker trimmed what a slow reader had not yet read)
//     is read again or is an error, never silence.
//   - A topic that was deleted is an error, never an empty log.
//   - An end is never before a message that a reader of the same [Topic] gave.
//   - No secret of a [Config] stands in an error or in the log.
//
// Positions are Pulsar's message ids. A message that is not in a batch has
// Batch 0, a chunked one has the id of its last chunk, and an encrypted entry is
// one message with the position of its last.
//
// It creates no topics and sets no policies. It does not support topics that
// are written in transactions: a transaction's end stands in the log as an
// entry that no reader is given.
package pulsarlog
