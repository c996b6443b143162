// Package armadabox runs a real, unmodified Armada for tests: the server, the
// scheduler, both ingesters and a stand-in for executors from one file,
// armadabox.zst, beside a PostgreSQL, a Redis and a Pulsar broker of its own,
// and our evaluator and ingester built from the checkout.
//
//	Find    the file, unpacked into the user's cache
//	Start   an Armada on free ports, ended with the test
//	Armada  its programs, started, stopped, killed and restarted by name
//
// The file comes from $ARMADA_BOX, a directory, or from ../shared/armada beside
// the checkout; ARMADA_BOX=none hides both. Where it is missing, tests are
// skipped and say so, but fail where REQUIRE_INTEGRATION=1 and ARMADA_BOX names
// a directory.
//
// Every program is a child process that dies with the test binary, and is
// ended by its own process id, the last one started first.
//
// The scenarios are rows in testdata/*.yaml; testdata/README.md says how to write one.
package armadabox
