// Package standin is a stand-in for an unmodified Armada around its scheduler
// database: the scheduler, executors with their pods, users, and a reader like
// Lookout's. Tests of our ingester run against it. For tests only.
//
// A World has a database with Armada's tables, the events topic and a clock of
// its own. It reads the tables and writes the topic; between the two stands the
// ingester under test, which a test calls between the steps:
//
//	w := armadatest.NewWorld(t, armadatest.Config{})
//	id := w.Submit(armadatest.Job{Script: []armadatest.Outcome{armadatest.Fail(1), armadatest.Succeed()}})[0]
//	for range 60 {
//		w.Step()
//		ingest() // reads w.Log(), writes the tables at w.URL(), takes w.Now for the time
//	}
//	if v := w.Violations(); len(v) != 0 { ... }
//
// It is written from what is known of Armada, not from our ingester, so that the
// two can contradict one another. What it holds to:
//
//   - The scheduler reads jobs and runs by their serials and keeps them in memory.
//     It takes over a queued flag or scheduling requirements only with a higher
//     version, fails a job whose last run failed unless the job is queued, and
//     forgets a job that is over in its memory when it sees its rows again. A row
//     that it does not know and that is not over is a new job to it.
//   - Nothing moves on, neither the cursors nor the memory, before what a cycle
//     has to say is in the log. A row that it cannot read stops every cycle.
//   - A pod has one name for all runs of its job, so a retry on a cluster that
//     still keeps the failed pod is returned, at the cost of an attempt.
//   - An executor learns of the end of a run from the runs table only, when it
//     asks for leases; until then the pod goes on.
//
// It is deterministic: a seed and what the ingester does and when give the same
// events. What it leaves out: preemption and fairness by the scheduling algorithm
// (a script says who is preempted), pools, prices, and the size of resources but
// for cpu, which counts a node's slots.
package standin
