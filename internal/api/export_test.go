package api

import "net/http"

// AddressOf is addressOf.
func (s *Service) AddressOf(r *http.Request) string { return s.addressOf(r) }
