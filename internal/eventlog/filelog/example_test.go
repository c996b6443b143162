package filelog_test

import (
	"context"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

func Example() {
	events, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "events", Partitions: 3})
	if err != nil {
		fatal(err)
	}
	key := "job-set-1"
	p := eventlog.PartitionFor(key, events.Partitions())
	batch := []eventlog.Message{{Key: key, Payload: []byte("submitted")}, {Key: key, Payload: []byte("leased")}}
	if err := events.AppendSync(context.Background(), p, batch); err != nil {
		fatal(err)
	}
	r, err := events.Open(p, eventlog.Start)
	if err != nil {
		fatal(err)
	}
	msgs := make([]eventlog.Message, 10)
	n, err := r.Read(msgs)
	if err != nil {
		fatal(err)
	}
	for _, m := range msgs[:n] {
		fmt.Printf("%v %s %s\n", m.Position, m.Key, m.Payload)
	}
	if err := r.Close(); err != nil {
		fatal(err)
	}
	if err := events.Close(); err != nil {
		fatal(err)
	}
	// Output:
	// 0:0:0 job-set-1 submitted
	// 0:0:1 job-set-1 leased
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
