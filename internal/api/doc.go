// Package api serves policies, queue bindings, settings and overrides over gRPC and
// REST, from one definition (pb/policies.proto). On the same port it serves Armada's
// RetryPolicyService (pb/armada.proto), so that armadactl works with it.
//
// Invariants:
//   - A change that is answered with success is durable and effective in the policies log.
//   - Of two concurrent writers one wins, and the other learns what has changed.
//   - Repeating a request after an error does not apply it twice.
//   - Armada's service never discards parts of a policy that Armada's form cannot express.
//   - Nobody who lacks a permission costs much, and kill and pause wait for nobody else.
//   - Every change records who made it, when and why. Secrets appear in no log and no error.
//
// service.go serves reads and overrides.go overrides; change.go handles every change;
// armada.go is Armada's service, and armadajson.go its REST form; fixed.go protects
// resources that another source owns; auth.go authenticates and authorizes; server.go
// serves it all on one port, and admit.go bounds what a request costs before it is decoded.
package api
