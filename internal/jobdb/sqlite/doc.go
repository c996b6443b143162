// Package sqlite is the job database in one SQLite file (ncruces/go-sqlite3,
// pure Go).
//
// One connection writes: in WAL mode, each commit synced before it returns.
// Readers, in other processes too, see the last commit and never wait for the
// writer, nor it for them. A second writer waits for the lock, then finds that
// the place has moved.
//
// A file is ours if its application_id says so; the table refloat_schema holds
// the schema's version, which Open brings up to date and OpenReader only reads.
//
// Text is stored as it came, with NUL bytes and invalid UTF-8. Enums are stored
// as their numbers, times as Unix nanoseconds, lists as JSON, 64-bit unsigned
// numbers as the signed ones with the same bits.
package sqlite
