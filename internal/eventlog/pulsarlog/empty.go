package pulsarlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"

	"github.com/refloat/refloat/internal/eventlog"
)

// The client takes an empty message without properties, outside a batch, for damaged
// and skips it (its reader cannot tell an empty payload from none). But it is a valid
// message and must not stop a partition. So if the client skips an entry, the reader
// asks the admin API for its content. If that is empty, the reader returns an empty
// message there and continues. The message has no key, because the admin API does not
// return it.

// undecodable is the entry that the client skipped.
type undecodable struct {
	at  entryID
	err error
}

func (u *undecodable) Error() string { return u.err.Error() }
func (u *undecodable) Unwrap() error { return u.err }

// proveEmpty finds out whether the skipped entry is an empty message. If it is not, or
// this cannot be determined, the error contains the client's.
func (t *Topic) proveEmpty(part *partition, u *undecodable) (eventlog.Message, error) {
	m := eventlog.Message{Position: eventlog.Position{Ledger: u.at.ledger, Entry: u.at.entry}}
	if published, ok := part.empty.Load(u.at); ok {
		m.Publish = published.(int64)
		return m, nil
	}
	k := t.cluster
	if k.admin == nil {
		return m, fmt.Errorf("%w (with the admin API, the reader can check whether it is an empty message: %w)", u, ErrNoAdmin)
	}
	name, err := utils.GetTopicName(part.name)
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.OperationTimeout)
	defer cancel()
	found, err := k.admin.Subscriptions().GetMessagesByIDWithContext(ctx, *name, u.at.ledger, u.at.entry)
	switch {
	case k.ctx.Err() != nil:
		return m, k.ctx.Err()
	case err != nil:
		err = k.adminClassed(err)
		if errors.Is(err, eventlog.ErrTransient) {
			return m, err // a retry may help
		}
		return m, fmt.Errorf("%w (and its content cannot be queried: %w)", u, err)
	case len(found) != 1 || len(found[0].Payload) > 0:
		return m, u
	}
	if at, err := time.Parse(time.RFC3339, found[0].Properties["publish-time"]); err == nil {
		m.Publish = at.UnixNano()
	}
	part.empty.Store(u.at, m.Publish)
	k.cfg.Log.Info("restored an empty message that the client skips", slog.String("partition", part.name), slog.String("position", m.Position.String()))
	return m, nil
}

// takeEmpty puts an empty message into pending in place of the entry that the source
// skipped, and returns true, if no message can be missing before it. Otherwise another
// source shows what comes first.
func (r *reader) takeEmpty(m eventlog.Message, fresh bool) bool {
	if m.Position.Compare(r.last) <= 0 {
		return true // read before
	}
	next := m.Position.Ledger == r.last.Ledger && m.Position.Entry == r.last.Entry+1 && r.rest == 0
	if !next && !fresh {
		return false
	}
	r.last, r.rest, r.index = m.Position, 0, nil
	_ = r.put(m) // it fails only once the reader is closed, which the loop notices itself
	return true
}
