// Package armadabox runs a real, unmodified Armada for tests: the server, the
// scheduler, both ingesters and a stand-in for executors from one file,
// armadabox.zst, with its own PostgreSQL, Redis and Pulsar broker, and our evaluator
// and ingester built from the checkout.
//
//	Find    the file, unpacked into the user's cache
//	Start   an Armada on free ports, ended with the test
//	Armada  its programs, started, stopped, killed and restarted by name
//
// The file comes from $ARMADA_BOX, a directory, or from ../shared/armada beside
// the checkout; ARMADA_BOX=none ignores both. If it is missing, tests are skipped with
// a message; they fail if REQUIRE_INTEGRATION=1 and ARMADA_BOX names a directory.
//
// Every program is a child process that dies with the test binary. Programs are ended
// by process id, in reverse order of start.
//
// The scenarios are rows in testdata/*.yaml; testdata/README.md explains how to write one.
package armadabox
