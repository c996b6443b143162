package pulsartest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
)

// NewNamespace creates a namespace with a fresh name and returns it, as "public/x…".
func (b *Broker) NewNamespace(ctx context.Context) (string, error) {
	name := fmt.Sprintf("public/x%016x", rand.Uint64())
	if err := b.admin(ctx, http.MethodPut, "namespaces/"+name, nil); err != nil {
		return "", fmt.Errorf("create namespace %s: %w", name, err)
	}
	return name, nil
}

// NewTopic creates a topic, as "persistent://tenant/namespace/topic"; with no
// partitions it is one topic, else it has that many.
func (b *Broker) NewTopic(ctx context.Context, topic string, partitions int) error {
	path, err := topicPath(topic)
	if err == nil && partitions == 0 {
		err = b.admin(ctx, http.MethodPut, path, nil)
	} else if err == nil {
		err = b.admin(ctx, http.MethodPut, path+"/partitions", partitions)
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

// Unload closes a topic in the broker, as a hand-over to another broker does:
// every client of it connects again. A partitioned topic is unloaded as a whole.
func (b *Broker) Unload(topic string) error {
	ctx, cancel := patient(context.Background())
	defer cancel()
	path, err := topicPath(topic)
	if err == nil {
		err = b.admin(ctx, http.MethodPut, path+"/unload", nil)
	}
	if err != nil {
		return fmt.Errorf("unload topic %s: %w", topic, err)
	}
	return nil
}

// Truncate deletes the messages of a topic, and moves every subscription to its end, as retention eventually does
// with acknowledged messages.
func (b *Broker) Truncate(topic string) error {
	if err := b.Unload(topic); err != nil { // or its last ledger stays
		return err
	}
	ctx, cancel := patient(context.Background())
	defer cancel()
	path, err := topicPath(topic)
	for err == nil {
		// The broker may still have the ledger that it is closing for the unload; it then refuses, with nothing done.
		if err = b.admin(ctx, http.MethodDelete, path+"/truncate", nil); err == nil {
			return nil
		}
		if strings.Contains(err.Error(), "Cursor was already closed") && ctx.Err() == nil {
			err = nil
		}
	}
	return fmt.Errorf("truncate topic %s: %w", topic, err)
}

func topicPath(topic string) (string, error) {
	domain, name, ok := strings.Cut(topic, "://")
	if !ok || strings.Count(name, "/") != 2 {
		return "", fmt.Errorf("%q is no full name: write persistent://tenant/namespace/topic", topic)
	}
	return domain + "/" + name, nil
}

// healthy asks the broker to write and to read a message, and for the tenant of
// our namespaces, which a standalone broker creates after it has begun to serve.
func (b *Broker) healthy(ctx context.Context) error {
	if err := b.admin(ctx, http.MethodGet, "brokers/health", nil); err != nil {
		return err
	}
	return b.admin(ctx, http.MethodGet, "tenants/public", nil)
}

func (b *Broker) admin(ctx context.Context, method, path string, body any) error {
	_, err := b.request(ctx, method, "/admin/v2/"+path, body)
	return err
}

// ask gets something of the admin API.
func (b *Broker) ask(ctx context.Context, path string, to any) error {
	return b.askAt(ctx, "/admin/v2/"+path, to)
}

// askAt gets something of the web service.
func (b *Broker) askAt(ctx context.Context, path string, to any) error {
	text, err := b.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

func (b *Broker) request(ctx context.Context, method, path string, body any) ([]byte, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.AdminURL+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, strings.TrimPrefix(path, "/admin/v2/"), resp.Status, bytes.TrimSpace(text))
	}
	return text, err
}
