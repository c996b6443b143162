package pulsarlog

import (
	"context"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"

	"github.com/refloat/refloat/internal/eventlog"
)

// Acknowledged returns the last entry up to which a subscription has acknowledged
// partition p, as the position before its first message: [eventlog.Start] if there is no
// such subscription, or it has acknowledged nothing of its current ledger. It uses the
// admin API.
func (t *Topic) Acknowledged(p int, subscription string) (eventlog.Position, error) {
	at, err := t.acknowledged(p, subscription)
	if err != nil {
		return eventlog.Position{}, t.fail("acknowledgements of "+subscription+" on", p, err)
	}
	return at, nil
}

func (t *Topic) acknowledged(p int, subscription string) (eventlog.Position, error) {
	part, err := t.partition(p)
	if err != nil {
		return eventlog.Position{}, err
	}
	k := t.cluster
	if k.admin == nil {
		return eventlog.Position{}, ErrNoAdmin
	}
	name, err := utils.GetTopicName(part.name)
	if err != nil {
		return eventlog.Position{}, err
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.OperationTimeout)
	defer cancel()
	stats, err := k.admin.Topics().GetInternalStatsWithContext(ctx, *name)
	if err != nil {
		return eventlog.Position{}, k.adminClassed(err)
	}
	cursor, ok := stats.Cursors[subscription]
	if !ok {
		return eventlog.Start, nil
	}
	at := eventlog.Position{Batch: -1}
	if _, err := fmt.Sscanf(cursor.MarkDeletePosition, "%d:%d", &at.Ledger, &at.Entry); err != nil {
		return eventlog.Position{}, fmt.Errorf("admin API: mark-delete position %q: %w", cursor.MarkDeletePosition, err)
	}
	if at.Entry < 0 {
		return eventlog.Start, nil
	}
	return at, nil
}
