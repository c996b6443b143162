// Package pulsarlog is the log on Apache Pulsar: one partitioned topic, its
// partitions read by exact position and appended by one exclusive publisher.
//
// Invariants:
//   - A reader returns each message once, in log order. A message that the client
//     would skip (after a reconnect, in a batch or chunked message that it cannot
//     decode, or because the broker trimmed it before a slow reader got there)
//     is read again or is an error, and never skipped silently.
//   - A topic that was deleted is an error, never an empty log.
//   - An end is never before a message that a reader of the same [Topic] has returned.
//   - No secret of a [Config] appears in an error or in the log.
//
// Positions are Pulsar's message ids. A message that is not in a batch has
// Batch 0, a chunked one has the id of its last chunk, and an encrypted entry is
// one message with the position of its last.
//
// It creates no topics and sets no policies. It does not support topics that
// are written in transactions: a transaction's end is an entry in the log that no
// reader receives.
package pulsarlog
