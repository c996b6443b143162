// Package standin is a stand-in for an unmodified Armada around its scheduler
// database: the scheduler, executors with their pods, users, and a reader like
// Lookout's. Tests of our ingester run against it. For tests only.
//
// A World has a database with Armada's tables, the events topic and its own clock. It
// reads the tables and writes the topic; the ingester under test connects the two, and
// a test calls it between the steps:
//
//	w := standin.NewWorld(t, standin.Config{})
//	id := w.Submit(standin.Job{Script: []standin.Outcome{standin.Fail(1), standin.Succeed()}})[0]
//	for range 60 {
//		w.Step()
//		ingest() // reads w.Log(), writes the tables at w.URL(), takes w.Now for the time
//	}
//	if v := w.Violations(); len(v) != 0 { ... }
//
// It is written from facts about Armada, independently of our ingester, so that a
// mistake in one of them shows. It models these facts:
//
//   - The scheduler reads jobs and runs by their serials and keeps them in memory.
//     It accepts a queued flag or scheduling requirements only with a higher
//     version, fails a job whose last run failed unless the job is queued, and
//     forgets a job that has ended in its memory when it sees its rows again. An
//     unknown row that has not ended is a new job to it.
//   - Neither the cursors nor the memory advance before the events of a cycle are
//     in the log. A row that it cannot read stops every cycle.
//   - The pods of all runs of a job have one name, so the lease of a retry on a cluster
//     that still has the failed pod is returned, which wastes an attempt.
//   - An executor learns of the end of a run only from the runs table, when it
//     requests leases; until then the pod keeps running.
//
// It is deterministic: the same seed and the same writes of the ingester at the same
// times give the same events. Limitations: no preemption and fairness by the
// scheduling algorithm (a script preempts runs), no pools and prices, and of the
// resources only cpu, which counts a node's slots.
package standin
