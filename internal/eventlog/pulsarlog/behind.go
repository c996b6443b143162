package pulsarlog

import (
	"context"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"

	"github.com/refloat/refloat/internal/eventlog"
)

// PartitionName returns the full name of a partition's own topic.
func (t *Topic) PartitionName(p int) string { return t.parts[p].name }

// Behind returns the number of entries in a partition after the entry of a position; a
// batch is one entry. It uses the admin API.
func (t *Topic) Behind(p int, after eventlog.Position) (int64, error) {
	if p < 0 || p >= len(t.parts) {
		return 0, t.fail("count entries of", p, fmt.Errorf("no such partition: the topic has %d", len(t.parts)))
	}
	if t.cluster.admin == nil {
		return 0, t.fail("count entries of", p, ErrNoAdmin)
	}
	name, err := utils.GetTopicName(t.parts[p].name)
	if err != nil {
		return 0, t.fail("count entries of", p, err)
	}
	ctx, cancel := context.WithTimeout(t.cluster.ctx, t.cluster.cfg.OperationTimeout)
	defer cancel()
	stats, err := t.cluster.admin.Topics().GetInternalStatsWithContext(ctx, *name)
	if err != nil {
		return 0, t.fail("count entries of", p, t.cluster.adminClassed(err))
	}
	behind := int64(0)
	for i, l := range stats.Ledgers {
		entries := l.Entries
		if i == len(stats.Ledgers)-1 { // the open one
			entries = stats.CurrentLedgerEntries
		}
		switch {
		case l.LedgerID > after.Ledger:
			behind += entries
		case l.LedgerID == after.Ledger:
			behind += max(0, entries-(after.Entry+1))
		}
	}
	return behind, nil
}
