// Package postgres is the job database in PostgreSQL, over pgx.
//
// The tables are those of package table with the prefix refloat_, in the
// connection's default schema, beside Armada's own tables, which the package never
// touches. Tx.Conn lets callers write those in the same transaction. The table
// refloat_schema identifies the tables as ours and holds their version; Open
// migrates them under an advisory lock, OpenReader only reads.
//
// A transaction first locks its partition's row in refloat_positions, so no one else
// can change the partition meanwhile. A second writer waits, then finds that the
// position has moved. Rows are written in one statement per table, over one array
// per column. Commits are synchronous, even if the server's default is not.
//
// A writer's queries look up keys. Its connections therefore disable sequential
// scans: a plan that was made while a table was small must not be kept.
//
// # Text
//
// PostgreSQL stores neither NUL nor invalid UTF-8, and its indexes cannot hold long
// text. So text is stored unchanged, with these exceptions:
//
//	each NUL, each byte that belongs to no UTF-8 character,
//	and each U+001A                                          U+001A and two hex digits
//	a job id, run id, queue or job set of more than
//	1000 bytes as stored                                     its beginning, U+001A, "=", its SHA-256 in hex
//
// The complete text of a key that is shortened this way is in the row's column
// long_keys, as a JSON list of column names and texts. Apply the same conversion to
// the text that you search for; ordinary text is unaffected. The order is that of the
// stored bytes (collation "C").
//
// Otherwise: enums are their numbers, times are Unix nanoseconds, lists are JSON,
// 64-bit unsigned numbers are the signed ones with the same bits.
//
// # Connections
//
// The address is a URL in pgx's format, with PGPASSWORD, ~/.pgpass and the like for
// missing parts. With several hosts, target_session_attrs=read-write selects the
// primary. A connection pooler in between must be in session mode.
package postgres
