// Package scheduling is Armada's scheduling algorithm as one pure function, Schedule: from
// queues, nodes and running jobs, it computes where each job should run. SENTENCES.md lists
// every sentence of Armada's description with the function that implements it;
// docs/internals/scheduling.md says how we read it where it leaves room.
//
// The result depends on the values of the input only, not on its order. All arithmetic that
// decides anything is on integers, and exact.
package scheduling
