package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/armada/policysync"
)

// Follow configures which Armada's policies are followed, and how.
type Follow struct {
	Address       string                 // HOST:PORT
	Every         time.Duration          // 0: the default
	TLS           *tls.Config            // nil: plain text
	Authorization func() (string, error) // returns the Authorization header; nil: no header is sent
}

func (f *Follow) every() time.Duration {
	if f.Every > 0 {
		return f.Every
	}
	return policysync.Every
}

// beginToFollow reads the policies before anything is decided. If that fails, the policies that an earlier process
// read stay in force; if there are none, it returns an error.
func (n *node) beginToFollow(ctx context.Context) (err error) {
	n.followed, err = policysync.New(policysync.Config{
		Address: n.Follow.Address, Every: n.Follow.every(), TLS: n.Follow.TLS, Authorization: n.Follow.Authorization,
		Store: n.policies, Log: n.Log, Now: n.Now, Polled: n.metrics.followed,
	})
	if err != nil {
		return err
	}
	failed := n.followed.Poll(ctx)
	if failed == nil || ctx.Err() != nil {
		return nil
	}
	newest, err := n.policies.Newest(ctx)
	if err == nil && newest.Generation() > 0 {
		return nil
	}
	return errors.Join(fmt.Errorf("follow the policies of Armada at %s: %w (no earlier process read them, so there are no policies to decide by)", n.Follow.Address, failed), err, n.followed.Close())
}

// followed exports the status of following.
func (m *Metrics) followed(s *pb.Source) {
	failing := 0.0
	if s.Error != "" {
		failing = 1
	}
	m.followFailing.WithLabelValues(s.Address).Set(failing)
	read := 0.0
	if s.LastGood != nil {
		read = float64(s.LastGood.AsTime().UnixNano()) / 1e9
	}
	m.followRead.WithLabelValues(s.Address).Set(read)
	missing := 0.0
	if s.MissingDefault != "" {
		missing = 1
	}
	m.followDefault.WithLabelValues(s.Address).Set(missing)
	m.followNot.WithLabelValues(s.Address).Set(float64(len(s.NotUnderstood)))
}
