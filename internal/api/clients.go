package api

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// A client is who limits count: a user who signed in, or else an address.

// clientKey is the context key of the client.
type clientKey struct{}

// ClientOf names the client of a request that Admit or the API has admitted.
func ClientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}

func withClient(ctx context.Context, who Principal, address string) context.Context {
	client := "address " + address
	if who.Verified {
		client = "user " + who.Name
	}
	return context.WithValue(ctx, clientKey{}, client)
}

// addressOf returns the address that a request comes from. What X-Forwarded-For says is believed as far as trusted proxies
// say it: each appends the address that it was asked from, so the list is read from its end.
func (s *Service) addressOf(r *http.Request) string {
	at, err := parseAddress(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		before, err := parseAddress(strings.TrimSpace(hop))
		if err != nil || !slices.ContainsFunc(s.Proxies, func(p netip.Prefix) bool { return p.Contains(at) }) {
			break
		}
		at = before
	}
	if at.Is6() { // one host has all addresses of a network of 64 bits
		if net, err := at.Prefix(64); err == nil {
			return net.String()
		}
	}
	return at.String()
}

// parseAddress reads an address with or without a port.
func parseAddress(text string) (netip.Addr, error) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap(), nil
	}
	at, err := netip.ParseAddr(text)
	return at.Unmap(), err
}

// Shares counts what clients have at once. The zero value is ready to use.
type Shares struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// Take gives a client one more, until it calls leave, of so many for all clients and for each. Where leave is nil there is
// none left, and own says that the client has too many itself.
func (s *Shares) Take(client string, all, each int) (leave func(), own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.of[client] >= each; own || s.all >= all {
		return nil, own
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[client]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[client]--; s.of[client] == 0 {
			delete(s.of, client)
		}
	}, false
}

// turns lets each client use so many slots at once; the rest of its requests wait for one of these. The zero value is ready
// to use.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

// turn is of one client, as long as it has requests.
type turn struct {
	slots    chan struct{}
	requests int
}

// wait waits until a client may use one more slot; leave gives it back.
func (t *turns) wait(ctx context.Context, client string, each int) (leave func(), err error) {
	t.mu.Lock()
	own := t.of[client]
	if own == nil {
		if t.of == nil {
			t.of = map[string]*turn{}
		}
		own = &turn{slots: make(chan struct{}, each)}
		t.of[client] = own
	}
	own.requests++
	t.mu.Unlock()
	done := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.requests--; own.requests == 0 {
			delete(t.of, client)
		}
	}
	select {
	case own.slots <- struct{}{}:
		return func() { <-own.slots; done() }, nil
	case <-ctx.Done():
		done()
		return nil, errManyRequests
	}
}
