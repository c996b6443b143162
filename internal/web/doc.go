// Package web serves the page: what Refloat decided and why, for people with a browser.
//
// It is rendered on the server by html/template, which escapes everything, and works without JavaScript; htmx only
// replaces what changes, and static/times.js adds local times to those in UTC. Nothing is loaded from elsewhere, and a strict
// Content-Security-Policy forbids inline code.
//
// Invariants:
//   - The URL is the state: every view can be linked to, and a filter is a query parameter.
//   - Whoever may not change something over the API may not change it here: changes go through api.Service.
//   - An answer is complete before the first byte of it is sent, so a slow client holds no snapshot of the job database,
//     and is dropped when it does not read in time. So much memory as one page takes bounds what it can show.
//
// web.go routes and bounds requests, view.go holds what templates show, and each view has a file.
package web
