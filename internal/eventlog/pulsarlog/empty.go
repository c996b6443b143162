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

// A message that is empty, is not in a batch and has no properties is one that the
// client takes for damaged and leaves out (its reader cannot tell an empty payload
// from none). It is a message like any other, though, and must stop nobody. So when
// the client leaves an entry out, the admin API is asked what is in it, and if that
// is nothing, the reader gives an empty message there and reads on behind it. It has
// no key: the admin API does not tell it.

// undecodable says which entry the client left out.
type undecodable struct {
	at  entryID
	err error
}

func (u *undecodable) Error() string { return u.err.Error() }
func (u *undecodable) Unwrap() error { return u.err }

// proveEmpty finds out whether what was left out is an empty message. If it is not, or
// that cannot be told, the error says what the client said.
func (t *Topic) proveEmpty(part *partition, u *undecodable) (eventlog.Message, error) {
	m := eventlog.Message{Position: eventlog.Position{Ledger: u.at.ledger, Entry: u.at.entry}}
	if published, ok := part.empty.Load(u.at); ok {
		m.Publish = published.(int64)
		return m, nil
	}
	k := t.cluster
	if k.admin == nil {
		return m, fmt.Errorf("%w (if it is an empty message, a reader with the admin API passes it: %w)", u, ErrNoAdmin)
	}
	name, err := utils.GetTopicName(part.name)
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.OperationTimeout)
	defer cancel()
	found, err := k.admin.Subscriptions().GetMessageByIDWithContext(ctx, *name, u.at.ledger, u.at.entry)
	switch {
	case k.ctx.Err() != nil:
		return m, k.ctx.Err()
	case err != nil:
		err = adminClassed(err)
		if errors.Is(err, eventlog.ErrTransient) {
			return m, err // it is asked again
		}
		return m, fmt.Errorf("%w (and what is in it cannot be asked: %w)", u, err)
	case found == nil || len(found.Payload) > 0:
		return m, u
	}
	if at, err := time.Parse(time.RFC3339, found.Properties["publish-time"]); err == nil {
		m.Publish = at.UnixNano()
	}
	part.empty.Store(u.at, m.Publish)
	k.cfg.Log.Info("an empty message, which the client leaves out", slog.String("partition", part.name), slog.String("position", m.Position.String()))
	return m, nil
}

// takeEmpty puts an empty message into pending in the place of what the source left
// out, where nothing can be missing before it, and says whether it did. Else another
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
	r.put(m)
	return true
}
