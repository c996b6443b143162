package main

import (
	"regexp"
	"slices"
	"testing"
)

// TestRunningHashes pins the running hashes of the recordings under version 1 of the semantics. They contain no
// imported jobs, so version 2 decides the same.
func TestRunningHashes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		recording string
		want      []string // by partition
	}{
		{"plain", []string{
			"b60ab40990d6e465220182dd9cec567c7025238432348e929ba14cd8b72f7b59",
			"b9a67174fbef4ce8371e676128c391e68ee849a678c9efbd77b3b737e7c8642c",
			"e9f061d7586e828b04634216e01138f8cea9ab1fd17ea6447e1923b39d607174",
		}},
		{"chaos", []string{
			"ae992ce6103ff53cb1946bc6095babd18eab195c2157c3611b8b545513ccb1ed",
			"0aaf4e01650c250b2cf8345142836a555c147931e236a0406036e16495f18961",
			"79b18b8ecba786a71e387a359abeeb8573208613836de77a54e69f8f3368f65e",
		}},
		{"preempted", []string{
			"4b272702767291ebd20fd374ce2d6d4b44ae9d35e685f2df4089eb0883742934",
			"8d9246050b10059851ad959bc51e52cad5299cce1613e34312e442b3bdf4dd74",
		}},
		{"retried", []string{
			"e5b0c6056b76e08d06e61ee623b2e31b66b30e13ce0c8efb5a06d29abffe47fc",
			"75decbbb49a752a9a6c6788d3cf9a228c761fe6b2029884f33bde85f09965b43",
			"ee699fd750ba2ec92e2869c21faa970dffc926db9ac763b96d05f0b1c062c1c5",
		}},
	}
	hash := regexp.MustCompile(`running hash ([0-9a-f]{64})`)
	for _, tt := range tests {
		for _, version := range []string{"1", "2"} {
			t.Run(tt.recording+" by semantics "+version, func(t *testing.T) {
				t.Parallel()
				data := t.TempDir()
				ctl(t, "up", "--data", data, "--policies", "testdata/hashes", "--feed", "../../testdata/recordings/"+tt.recording+".jsonl.gz",
					"--semantics", version, "--exit-when-drained", "--quiet").exits(t, exitFine)
				verified := ctl(t, "verify", "--data", data).exits(t, exitFine)
				var got []string
				for _, m := range hash.FindAllStringSubmatch(verified.out, -1) {
					got = append(got, m[1])
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("running hashes %q, want %q", got, tt.want)
				}
			})
		}
	}
}
