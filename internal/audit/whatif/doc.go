// Package whatif decides a real history by other policies, and compares.
//
// A candidate has a state of its own: it counts what it decides itself, by its own rules
// and limits, over the runs that really happened. So its answers are exact for as long as
// they lead to the history that happened: for each job (or group) up to the first failed
// run that is retried by one side and not by the other. There the two histories part (ADR
// 20), and what follows is not compared, because nobody knows it, but counted:
//
//   - Runs that took place behind a retry that only one side grants are known, whichever side
//     that is: how many there were, how long they ran, and what became of the job, for as long
//     as that side retries it.
//   - What a retry would have done that did not take place is in no log. It counts as one more
//     retry, and nothing else is claimed.
//
// A retry at another time, or on other nodes, is a changed decision; the run after it is
// taken as it happened.
package whatif
