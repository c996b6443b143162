// Package policysync follows the policies of an Armada server: its retry policies,
// and which of them its queues name, become generations of our policies log.
//
// What must hold:
//   - What the server says holds, also where it says that there is nothing. What it
//     does not say is ours and stays: settings, brakes, and what else queues say here.
//   - Nothing changes by an answer that is not whole, and nothing without a change.
//   - Of several followers of one server each change becomes one generation: one is
//     written only by what was read after the generation before it, so no follower
//     goes back to what another has passed.
//   - A policy that cannot be used here keeps the form in which it could, is named, and
//     stops no other.
package policysync
