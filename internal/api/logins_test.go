package api_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/api"
)

// TestPasswordStorm checks that an attacker who tries passwords gets few of them compared at once, and does not
// lock out users who authenticated a moment ago. A correct password is remembered; a wrong one, or one of another
// user, is not.
func TestPasswordStorm(t *testing.T) {
	t.Parallel()
	const attempts = 30
	hash := hashed(t, 11)
	auth := &api.Auth{Basic: map[string]api.BasicUser{"ann": {PasswordHash: hash}, "eve": {PasswordHash: hashed(t, 4)}}}
	if err := auth.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	status := func(user, password string) int {
		code, _ := w.rest("GET", "/refloat/v1/status", "", "Authorization", basicHeader(user, password))
		return code
	}
	begin := time.Now()
	if code := status("ann", password); code != http.StatusOK {
		t.Fatalf("ann signs in: %d", code)
	}
	first := time.Since(begin)
	codes := make([]int, attempts)
	var group sync.WaitGroup
	for i := range attempts {
		group.Go(func() { codes[i] = status([]string{"ann", "bob"}[i%2], fmt.Sprint("guess ", i)) })
	}
	begin = time.Now()
	for range 10 {
		if code := status("ann", password); code != http.StatusOK {
			t.Errorf("ann signs in during the storm: %d", code)
		}
	}
	if again := time.Since(begin) / 10; again > first/3 {
		t.Errorf("a sign-in takes %v, and again during the storm %v", first, again)
	}
	group.Wait()
	count := map[int]int{}
	for _, code := range codes {
		count[code]++
	}
	if count[http.StatusUnauthorized]+count[http.StatusTooManyRequests] != attempts || count[http.StatusUnauthorized] == 0 || count[http.StatusUnauthorized] > attempts/2 {
		t.Errorf("%d attempts at once: by status %v; want a few 401, the others 429", attempts, count)
	}
	for _, c := range []struct{ user, password string }{{"ann", password + "!"}, {"eve", password + "!"}, {"bob", password}, {"ann", ""}} {
		if code := status(c.user, c.password); code != http.StatusUnauthorized {
			t.Errorf("%s with %q after ann signed in: %d", c.user, c.password, code)
		}
	}
}
