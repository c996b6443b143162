package api_test

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
)

// TestAddresses: what X-Forwarded-For says counts from its end, as far as trusted proxies say it.
func TestAddresses(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/16")}
	for _, c := range []struct {
		name, from string
		forwarded  []string
		want       string
	}{
		{"no proxy", "192.0.2.1:99", nil, "192.0.2.1"},
		{"somebody who is no proxy", "192.0.2.1:99", []string{"198.51.100.7"}, "192.0.2.1"},
		{"a proxy", "10.0.0.1:99", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a proxy that says nothing", "10.0.0.1:99", nil, "10.0.0.1"},
		{"two proxies", "10.0.0.1:99", []string{"198.51.100.7, 10.2.3.4"}, "198.51.100.7"},
		{"two headers", "10.0.0.1:99", []string{"198.51.100.7", "10.2.3.4"}, "198.51.100.7"},
		{"what the client made up", "10.0.0.1:99", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"a proxy that the client made up", "10.0.0.1:99", []string{"203.0.113.9, 10.9.9.9, 198.51.100.7"}, "198.51.100.7"},
		{"nonsense before", "10.0.0.1:99", []string{"unknown, 10.2.3.4"}, "10.2.3.4"},
		{"with ports", "10.0.0.1:99", []string{"198.51.100.7:1234, [fd00::1]:80"}, "198.51.100.7"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:99", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"a network of IPv6", "[2001:db8:1:2:3:4:5:6]:99", nil, "2001:db8:1:2::/64"},
		{"no address", "@", []string{"198.51.100.7"}, "@"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.from
		for _, text := range c.forwarded {
			r.Header.Add("X-Forwarded-For", text)
		}
		if got := (&api.Service{Proxies: proxies}).AddressOf(r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestEachClient: whoever asks for much waits for himself, behind a proxy too, and however he signs in.
func TestEachClient(t *testing.T) {
	t.Parallel()
	tokens := map[string]api.Token{"ci": {SHA256: digestOf(ciToken)}, "other": {SHA256: digestOf("other")}}
	for name, c := range map[string]struct {
		change      func(*api.Service)
		first, next []string // headers
	}{
		"by address": {func(s *api.Service) { s.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }, []string{"X-Forwarded-For", "192.0.2.1"}, []string{"X-Forwarded-For", "192.0.2.2"}},
		"by user": {func(s *api.Service) {
			s.Auth = &api.Auth{Tokens: tokens}
			if err := s.Auth.Check(); err != nil {
				t.Error(err)
			}
		}, []string{"Authorization", "Bearer " + ciToken}, []string{"Authorization", "Bearer other"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const many = 30
			entered, leave := make(chan struct{}, many), make(chan struct{})
			w := newWorld(t, c.change, func(s *api.Service) {
				s.Source = func() *pb.Source {
					entered <- struct{}{}
					<-leave
					return nil
				}
			})
			var group sync.WaitGroup
			for range many {
				group.Go(func() {
					if code, text := w.rest("GET", "/refloat/v1/status", "", c.first...); code != 200 {
						t.Errorf("one of many: %d %s", code, text)
					}
				})
			}
			const each = 12 // of 16
			for range each {
				<-entered
			}
			for range many {
				if code, text := w.rest("GET", "/refloat/v1/history", "", c.next...); code != 200 {
					t.Errorf("somebody else: %d %s", code, text)
					break
				}
			}
			close(leave)
			group.Wait()
		})
	}
}

// TestShares: they count all and each, and forget who has left.
func TestShares(t *testing.T) {
	t.Parallel()
	var s api.Shares
	var leave []func()
	take := func(client string, want, own bool) {
		t.Helper()
		left, mine := s.Take(client, 5, 2)
		if (left != nil) != want || mine != own {
			t.Errorf("%s: %v, %v, want %v, %v", client, left != nil, mine, want, own)
		}
		if left != nil {
			leave = append(leave, left)
		}
	}
	for _, client := range []string{"a", "b"} {
		take(client, true, false)
		take(client, true, false)
		take(client, false, true)
	}
	take("c", true, false)
	take("d", false, false)
	for _, left := range leave {
		left()
	}
	for i := range 5 {
		take(fmt.Sprint(i), true, false)
	}
	take("more", false, false)
}
