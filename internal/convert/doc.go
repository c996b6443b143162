// Package convert turns manifests of other systems into jobs of Armada and policies of ours (semantics.md 12.12): a Job of
// Kubernetes, a JobSet, a Volcano Job or a JobFlow becomes an Armada submit file, in which every pod is a job, with the
// GroupPolicy and the RetryPolicies under which it behaves as before.
//
// Convert takes bytes and returns values: a Result has the jobs, the policies as a policyfile.Set, and one Note for
// each field that is lost or means something else. Without an Error among the notes, lint has no findings about the
// policies.
//
// A system (job.go, jobset.go, jobflow.go, volcano.go) maps one kind of manifest to a Workload, and nothing else;
// everything after that is shared: policies.go makes policies of a Workload, jobs.go its jobs, pod.go what Armada runs of a pod. Each system has
// a table of every field of its API (…_fields.go): what the field becomes, and why. Notes are made from that table, and
// a test fails on a field that is missing there.
//
// To add a system: a type for its manifests (strict: decode.go names unknown fields), its table, a function that fills a
// Workload, and a row in systems (convert.go).
package convert
