package policylog_test

import (
	"crypto/sha256"
	"testing"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// foreign is a generation whose content only another version of the program understands.
func foreign(t *testing.T, madeOf uint64) []byte {
	t.Helper()
	return generation(t, []byte(`{"version":2}`), &pb.PolicyGeneration{MadeOf: &madeOf}, false)
}

// bomb is a small message with 200 MiB in it.
func bomb(t *testing.T) []byte {
	t.Helper()
	return generation(t, make([]byte, 200<<20), &pb.PolicyGeneration{Zstd: true}, true)
}

func generation(t *testing.T, content []byte, m *pb.PolicyGeneration, pack bool) []byte {
	t.Helper()
	d := sha256.Sum256(content)
	m.Digest, m.Content = d[:], content
	if pack {
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Content = enc.EncodeAll(content, nil)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
