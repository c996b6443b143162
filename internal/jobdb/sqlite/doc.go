// Package sqlite is the job database in one SQLite file (ncruces/go-sqlite3,
// pure Go).
//
// One connection writes, in WAL mode, and each commit is synced before it returns.
// Readers, also in other processes, see the last commit; readers and the writer never
// block each other. A second writer waits for the lock, then finds that the position
// has moved.
//
// The application_id of a file identifies it as ours; the table refloat_schema holds
// the schema's version, which Open migrates to the newest and OpenReader only reads.
//
// Text is stored unchanged, including NUL bytes and invalid UTF-8. Enums are stored
// as their numbers, times as Unix nanoseconds, lists as JSON, 64-bit unsigned
// numbers as the signed ones with the same bits.
package sqlite
