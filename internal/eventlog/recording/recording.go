// Package recording reads and writes recordings: histories of a log's messages
// as gzipped lines of JSON.
//
// One line is one message:
//
//	partition             number of the partition
//	ledger, entry, batch  position in the log that was recorded; batch may be
//	                      left out (0), and is -1 or 0 when not batched
//	key                   routing key
//	publish_time          RFC 3339, UTC
//	producer              name of the producer; may be left out
//	properties            object of strings; may be left out
//	payload               base64 of the message's bytes
//
// Fields that are not known are passed over. The lines of one partition stand
// in the order of their positions.
//
// Invariant: what is read is exactly what was written, in the same order, or
// there is an error that names the file and the line. The payload's meaning is
// not looked at.
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
	// Message has the recorded position and publish time, as its own and as
	// its Origin.
	Message eventlog.Message
}

// Name is the name of the recording in a file: the base name up to its first
// dot.
func Name(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return name
}

// line is one message as it stands in the file. Pointers tell what is missing.
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
