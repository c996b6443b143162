// Package postgres is the job database in PostgreSQL, over pgx.
//
// The tables are those of package table with the prefix refloat_, in the
// connection's default schema: beside Armada's own, which the package never
// touches. Tx.Conn lets others write theirs in the same transaction. The table
// refloat_schema says whose the tables are and which version they have; Open
// brings them up to date under an advisory lock, OpenReader only reads.
//
// A transaction first locks its partition's row in refloat_positions, so what it
// sees of the partition stays true. A second writer waits, then finds that the
// place has moved. Rows are written in one statement per table, over one array
// per column. Commits are synchronous, also where the server's default is not.
//
// Queries of a writer go by keys. Its connections therefore forbid sequential
// scans: a plan that was made while a table was small must not stay.
//
// # Text
//
// PostgreSQL holds no NUL and no invalid UTF-8, and its indexes hold no long
// text. So text is stored as it is, but for this:
//
//	each NUL, each byte that belongs to no UTF-8 character,
//	and each U+001A                                          U+001A and two hex digits
//	a job id, run id, queue or job set of more than
//	1000 bytes as stored                                     its beginning, U+001A, "=", its SHA-256 in hex
//
// What the second line cuts off stands whole in the row's column long_keys, as a
// JSON list of column names and texts. Whoever searches must do the same to what
// he searches for; with ordinary text there is nothing to do. Order is that of
// the stored bytes (collation "C").
//
// Otherwise: enums are their numbers, times are Unix nanoseconds, lists are JSON,
// 64-bit unsigned numbers are the signed ones with the same bits.
//
// # Connections
//
// Where to connect is a URL as pgx reads it, with PGPASSWORD, ~/.pgpass and the
// like for what it leaves out. With several hosts, target_session_attrs=read-write
// finds the one that can be written. A pooler between must be in session mode.
package postgres
