// Package pulsartest gives tests a real Apache Pulsar broker: version 4.0.8,
// standalone, on loopback, configured so that tests are quick.
//
//	Shared  one broker for the whole test binary; its TestMain calls Main
//	Start   a separate broker for one test, to kill or to configure differently
//	Launch  the same without package testing, for programs
//
// A broker is a container of the image apachepulsar/pulsar:4.0.8 or a child
// process of the unpacked distribution, whichever this machine has; hack/parts.sh
// fetches both. The environment selects among them:
//
//	REFLOAT_TEST_BROKER        container or process: use only that
//	REFLOAT_PULSAR_HOME        the unpacked distribution; else the cache that hack/parts.sh fills
//	REFLOAT_TEST_PULSAR        service URL of a running broker, for Shared
//	REFLOAT_TEST_PULSAR_ADMIN  its admin URL
//	REQUIRE_INTEGRATION=1      a test without a broker fails instead of being skipped
//
// Restart starts a killed broker on the same data and the same ports, and
// acknowledged messages are on disk (journalSyncData). Nothing is left behind,
// however the test binary ends: a guard, a small shell, waits for its end and removes
// the container or the process and its directory.
//
// StartCluster runs two brokers on a ZooKeeper and a bookie, as child processes: four, and over 1 GB of memory.
//
// Limitations: one bookie, no TLS.
package pulsartest
