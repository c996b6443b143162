// Package cutover lets our ingester take the place of Armada's scheduler
// ingester on the same tables, and gives it back.
//
// Where Armada's ingester stands is its subscription's cursor on each partition
// of events. Start makes that the place of our rows, with a release of no
// messages that says what was taken in elsewhere: our ingester then applies
// exactly what comes after. Back ends all waits in Armada's tables and sets the
// cursor behind what our ingester took in. Armada's subscription stays all the
// while, so that the broker keeps what Armada did not read.
//
// Invariant: each message of events is applied to Armada's tables by one of the
// two, in order, and none is left out. (Of a batch that Armada's ingester had in
// hand when it stopped, the beginning may be applied again, as it does itself.)
// Whatever is in doubt is refused, and nothing is written then.
//
// Look asks the broker and the database; what it finds is judged purely; a
// rehearsal ends before the first write. Nobody is stopped or started here.
package cutover
