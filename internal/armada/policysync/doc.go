// Package policysync follows the policies of an Armada server: it turns the server's
// retry policies, and the policies that its queues name, into generations of our
// policies log.
//
// Invariants:
//   - The server is the source of truth for what it serves, even if it serves nothing.
//     Everything else stays ours: settings, overrides, and the other fields of queues.
//   - An incomplete answer changes nothing, and without a change there is no generation.
//   - If several processes follow one server, each change becomes one generation: a
//     process writes one only from an answer that it read after the generation before
//     it, so no process reverts to what another has moved past.
//   - A policy that cannot be used here stays in its last usable version, is reported
//     by name, and does not affect other policies.
package policysync
