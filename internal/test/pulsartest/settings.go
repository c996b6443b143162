package pulsartest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Version is the Pulsar release that Refloat is tested against.
const Version = "4.0.8"

// Image is the container image of that release.
const Image = "apachepulsar/pulsar:" + Version

// The JVM is small and compiles quickly rather than well: half the processor
// time until the broker is usable. A benchmark sets Options.JVM.
const (
	defaultMemory = "-Xms256m -Xmx768m -XX:MaxDirectMemorySize=768m"
	defaultJVM    = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
)

// Defaults are the broker settings that differ from the shipped ones: quick
// take-over, small memory, durable writes, and no message that goes away or
// topic that appears by itself.
func Defaults() map[string]string {
	return map[string]string{
		"keepAliveIntervalSeconds":                   "5",
		"activeConsumerFailoverDelayTimeMillis":      "0",
		"managedLedgerNewEntriesCheckDelayInMillis":  "0",
		"managedLedgerDefaultMarkDeleteRateLimit":    "10",
		"journalSyncData":                            "true",
		"brokerDeleteInactiveTopicsEnabled":          "false",
		"allowAutoTopicCreation":                     "false",
		"defaultRetentionTimeInMinutes":              "-1",
		"defaultRetentionSizeInMB":                   "-1",
		"backlogQuotaDefaultLimitGB":                 "-1",
		"brokerEntryMetadataInterceptors":            "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
		"exposingBrokerEntryMetadataToClientEnabled": "true",

		"loadBalancerEnabled":               "false",
		"transactionCoordinatorEnabled":     "false",
		"webSocketServiceEnabled":           "false",
		"diskUsageThreshold":                "0.99",
		"managedLedgerCacheSizeMB":          "64",
		"dbStorage_writeCacheMaxSizeMb":     "32",
		"dbStorage_readAheadCacheMaxSizeMb": "32",
	}
}

// with returns settings with others over them.
func with(settings map[string]string, over ...map[string]string) map[string]string {
	all := maps.Clone(settings)
	for _, o := range over {
		maps.Copy(all, o)
	}
	return all
}

// writeConfig writes the shipped configuration to file, with settings applied.
func writeConfig(file, shipped string, settings map[string]string) error {
	text, err := os.ReadFile(shipped)
	if err != nil {
		return fmt.Errorf("read the shipped configuration: %w", err)
	}
	var b bytes.Buffer
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, "=")
		if _, ours := settings[strings.TrimSpace(key)]; !ours {
			b.WriteString(strings.TrimRight(line, "\n") + "\n") // the last line ends without one
		}
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s=%s\n", key, settings[key])
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}
