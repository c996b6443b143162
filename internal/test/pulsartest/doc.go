// Package pulsartest gives tests a real Apache Pulsar broker: version 4.0.8,
// standalone, on loopback, configured so that tests are quick.
//
//	Shared  one broker for the whole test binary; its TestMain calls Main
//	Start   a broker of the test's own, to be killed or set up otherwise
//	Launch  the same without package testing, for programs
//
// A broker is a container of the image apachepulsar/pulsar:4.0.8 or a child
// process of the unpacked distribution, whichever this machine has; both are
// fetched by hack/parts.sh. The environment decides where there is a choice:
//
//	REFLOAT_TEST_BROKER        container or process: only that way
//	REFLOAT_PULSAR_HOME        the unpacked distribution; else the cache that hack/parts.sh fills
//	REFLOAT_TEST_PULSAR        service URL of a running broker, for Shared
//	REFLOAT_TEST_PULSAR_ADMIN  its admin URL
//	REQUIRE_INTEGRATION=1      a test without a broker fails instead of being skipped
//
// A killed broker comes back with Restart on the same data and the same ports,
// and acknowledged messages are on disk (journalSyncData). Nothing stays
// behind, however the test binary ends: a guard, a small shell, waits for that
// and removes the container or the process and its directory.
//
// It is no cluster: there is one broker and one bookie, and no TLS.
package pulsartest
