package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

// Rogue is a client that takes from an owner the right to publish, which the
// owner's own client never does: the proxy makes it fence.
type Rogue struct {
	proxy  *Proxy
	client pulsar.Client
}

// NewRogue connects to a broker.
func NewRogue(url, adminURL string) (*Rogue, error) {
	p, err := NewProxy(url, adminURL)
	if err != nil {
		return nil, err
	}
	p.Fence.Store(true)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: p.URL, OperationTimeout: 10 * time.Second, Logger: log.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("connect the rogue: %w", err)
	}
	return &Rogue{p, client}, nil
}

// Fence takes the right to publish to a topic and publishes messages. It keeps
// the right until leave is called.
func (r *Rogue) Fence(ctx context.Context, topic string, messages ...[]byte) (leave func(), err error) {
	p, err := r.client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive, DisableBatching: true, SendTimeout: 10 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("fence %s: %w", topic, err)
	}
	for _, m := range messages {
		if _, err := p.Send(ctx, &pulsar.ProducerMessage{Payload: m}); err != nil {
			p.Close()
			return nil, fmt.Errorf("publish to %s as a stranger: %w", topic, err)
		}
	}
	return p.Close, nil
}

// Close ends it.
func (r *Rogue) Close() error {
	r.client.Close()
	return r.proxy.Close()
}
