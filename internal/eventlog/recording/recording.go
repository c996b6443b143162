// Package recording reads and writes recordings: histories of a log's messages as
// gzipped JSON lines.
//
// One line is one message:
//
//	partition             number of the partition
//	ledger, entry, batch  position in the recorded log; batch may be omitted (0),
//	                      and is -1 or 0 for a message outside a batch
//	key                   routing key
//	publish_time          RFC 3339, UTC
//	producer              name of the producer; optional
//	properties            object of strings; optional
//	payload               base64 of the message's bytes
//
// Unknown fields are ignored. The lines of one partition are in the order of their
// positions.
//
// Invariant: a reader returns exactly what was written, in the same order, or an
// error that names the file and the line. The payload is not interpreted.
package recording

import (
	"path/filepath"
	"strings"

	"github.com/refloat/refloat/internal/eventlog"
)

// Entry is one recorded message.
type Entry struct {
	Partition int
	Producer  string
	// Message has the recorded position and publish time, both as its own and as
	// its Origin.
	Message eventlog.Message
}

// Name returns the name of the recording in a file: the base name up to its first
// dot.
func Name(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return name
}

// line is one message in the form of the file. Nil pointers are missing fields.
type line struct {
	Partition   *int32            `json:"partition"`
	Ledger      *int64            `json:"ledger"`
	Entry       *int64            `json:"entry"`
	Batch       int32             `json:"batch"`
	Key         string            `json:"key"`
	PublishTime *string           `json:"publish_time"`
	Producer    string            `json:"producer,omitempty"`
	Properties  map[string]string `json:"properties,omitempty"`
	Payload     *string           `json:"payload"`
}
