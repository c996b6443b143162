package api

import "net/http"

// HoldLogins lets no password be compared until release.
func (a *Auth) HoldLogins() (release func()) {
	for range cap(a.logins.compare) {
		a.logins.compare <- struct{}{}
	}
	return func() {
		for range cap(a.logins.compare) {
			<-a.logins.compare
		}
	}
}

// LoginsEach is loginsEach.
const LoginsEach = loginsEach

// AddressOf is addressOf.
func (s *Service) AddressOf(r *http.Request) string { return s.addressOf(r) }
