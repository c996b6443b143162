package eventlog

import "fmt"

// PartitionFor returns the partition, out of n, of messages with this key: Pulsar's
// JavaStringHash of the key's UTF-8 bytes, modulo n. The hash is taken as an unsigned
// number; its sign bit is not masked.
func PartitionFor(key string, n int) int {
	if n < 1 {
		panic(fmt.Sprintf("eventlog: PartitionFor with %d partitions", n))
	}
	return int(javaStringHash(key) % uint32(n))
}

func javaStringHash(s string) uint32 {
	var h uint32
	for i := range len(s) {
		h = 31*h + uint32(s[i])
	}
	return h
}
