// Package table maps the rows of a job database to relational tables, and has the
// queries that find them, for sqlite and postgres alike.
//
// A table is a list of columns and, for a row, pointers to its fields in that
// order. A driver reads and writes through these pointers, which have few types:
//
//	*string                              text
//	*[]string, *[]jobdb.Container        a list, stored as JSON text
//	*[]byte, *[16]byte, *[32]byte        bytes; only of the first, nil is NULL
//	*bool
//	*uint8                               an enum, stored as its number
//	*int, *int32, *uint32, *int64        numbers
//	*uint64                              stored as the signed number with the same bits
//
// The package knows no driver and writes nothing.
package table
