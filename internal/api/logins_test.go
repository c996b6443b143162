package api_test

import (
	"fmt"
	"net/http"
	"testing"

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
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	status := func(user, password string) int {
		code, _ := w.rest("GET", "/refloat/v1/status", "", "Authorization", basicHeader(user, password))
		return code
	}
	if code := status("ann", password); code != http.StatusOK {
		t.Fatalf("ann signs in: %d", code)
	}
	release := auth.HoldLogins()
	codes := make(chan int, attempts)
	for i := range attempts {
		go func() { codes <- status([]string{"ann", "bob"}[i%2], fmt.Sprint("guess ", i)) }()
	}
	for range attempts - api.LoginsEach {
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("one of %d attempts at once: %d", attempts, code)
		}
	}
	if code := status("ann", password); code != http.StatusOK { // while nothing can be compared
		t.Errorf("ann signs in during the storm: %d", code)
	}
	release()
	for range api.LoginsEach {
		if code := <-codes; code != http.StatusUnauthorized && code != http.StatusTooManyRequests { // it waited for too long
			t.Errorf("an attempt that waited: %d", code)
		}
	}
	for _, c := range []struct{ user, password string }{{"ann", password + "!"}, {"eve", password + "!"}, {"bob", password}, {"ann", ""}} {
		if code := status(c.user, c.password); code != http.StatusUnauthorized {
			t.Errorf("%s with %q after ann signed in: %d", c.user, c.password, code)
		}
	}
}
