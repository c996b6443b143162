// Package api serves policies, queue bindings, settings and brakes over gRPC and
// REST, from one definition (pb/policies.proto), and Armada's RetryPolicyService
// (pb/armada.proto) beside it, so that armadactl works against the same port.
//
// What must hold:
//   - What is answered with success is durable in the policies log, and counts there.
//   - Of two writers at once one wins, and the other is told what changed.
//   - To ask again after an error changes nothing twice.
//   - What Armada's form of a policy cannot say is never lost through Armada's service.
//   - Every change says who made it, when and why. Secrets stand in no log and no error.
//
// service.go reads and brakes.go brakes; change.go is the way of every change;
// armada.go is Armada's service, and armadajson.go its REST; fixed.go keeps what comes
// from elsewhere; auth.go knows who asks and what they may; server.go
// puts them on one port.
package api
