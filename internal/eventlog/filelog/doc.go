// Package filelog is an embedded partitioned log on segment files: one
// directory per topic, one writer at a time, any number of readers, also in
// other processes and while the writer runs.
//
// Invariants:
//   - A reader sees only durable messages, which a successful fsync covers. It never
//     sees a message twice, and never skips one silently.
//   - Messages that a reader has seen survive any crash, byte for byte.
//   - After a failed write or fsync, this process can no longer use the log: an
//     fsync is never retried on the same file, because the kernel may have dropped
//     the dirty pages and marked them clean.
//   - Damage before the proven durable end is [eventlog.ErrCorrupt]; only bytes that
//     were never proven durable are dropped, and only by the next writer.
//
// It does not replicate, compact, or delete old segments. An operator may
// delete the oldest segment files of a partition; reading their messages then fails
// with [eventlog.ErrTrimmed].
//
// # Files
//
//	LOCK                     held by the writer (file lock)
//	META                     partition count
//	0000/                    partition 0; four digits or more
//	0000/SYNCED              how far the partition is durable
//	0000/<20 digits>.seg     a segment, named by the ordinal of its first frame
//
// A message's position is {Ledger: ordinal of the first frame of its segment,
// Entry: ordinal of its frame, Batch: index in the frame}. Ordinals count the
// frames of a partition from 0 and are dense, so a missing frame or segment is
// always detected.
//
// All integers are little endian; CRC is CRC-32C (Castagnoli).
//
// # META (16 bytes)
//
//	 0  1  version, 1
//	 1  7  "rfltlog"
//	 8  4  number of partitions
//	12  4  CRC of bytes 0 to 12
//
// It is written last when a log is created, under a temporary name, and then renamed:
// a log that has it is complete.
//
// # SYNCED (two slots of 56 bytes, at 0 and at 4096)
//
//	 0  1  version, 1
//	 1  3  zero
//	 4  4  CRC of bytes 8 to 56 and 0 to 4
//	 8  8  segment (ordinal of its first frame)
//	16  8  offset in the segment up to which it is durable
//	24  8  ordinal of the next frame
//	32 20  position of the last message: ledger, entry, batch
//	52  4  partition
//
// After each fsync of the segment the slot with the smaller ordinal is
// overwritten, so that one slot is always intact; the larger one is valid. The file
// itself is synced only on Close: everything in it was durable before it was written,
// so stale content only understates the durable end. Readers in other processes poll it.
//
// # Segment header (64 bytes)
//
//	 0  1  version, 1
//	 1  7  "rfltseg"
//	 8  4  CRC of bytes 12 to 64 and 0 to 8
//	12  4  partition
//	16  8  ordinal of the first frame
//	24  8  created, Unix nanoseconds
//	32 20  position of the last message before the segment: ledger, entry, batch
//	52 12  zero
//
// The header and all earlier segments are durable before the first frame is written.
// So only the last segment can hold anything that is not durable.
//
// # Frame (header of 40 bytes, then the body)
//
//	 0  4  CRC of bytes 4 to 40, starting from the CRC in the segment header
//	 4  4  CRC of the body
//	 8  4  length of the body as stored in the file
//	12  4  length of the body when decompressed
//	16  1  codec: 0 none, 1 s2
//	17  3  zero
//	20  4  number of messages, at least 1
//	24  8  ordinal
//	32  8  synced: the frames below this ordinal were durable when this one was
//	       written
//
// The CRC starts from the segment's, which depends on the time of its creation, so
// that bytes copied from another segment, or into a payload, do not pass for frames.
//
// # Message in a body
//
//	1        flags: 1 has properties, 2 has an origin
//	8        publish time, Unix nanoseconds
//	uvarint  length of the key, then the key
//	if 1     uvarint number of properties, each: length, key, length, value
//	if 2     length, name of the recording; varint ledger, entry, batch;
//	         8 bytes publish time
//	uvarint  length of the payload, then the payload
//
// # Recovery
//
// A writer that opens the log scans each partition from its position in SYNCED (or
// from the start of the last segment if SYNCED is damaged) to the first incomplete
// frame. If SYNCED, the length of the file, or a later frame's "synced" field proves
// that this offset was durable, the log is corrupt. Otherwise the rest is a torn write
// that was never acknowledged: it is overwritten with zeroes. Complete frames that were
// not proven durable are rewritten in place and synced before any reader sees them,
// because after a failed fsync a file's pages can look clean without being on disk.
package filelog
