package checkpoint_test

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
	"github.com/refloat/refloat/internal/test/s3test"
)

// TestS3 saves, lists, prunes and restores in an S3 bucket, with a multipart file, over
// TLS with a private CA.
func TestS3(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "HUSH")
	fake := s3test.New(time.Now)
	server := httptest.NewTLSServer(fake)
	defer server.Close()
	dir := tempDir(t)
	authority := filepath.Join(dir, "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(t.Context(), "s3://bucket/of/ours?region=eu-central-1&use_path_style=true&endpoint="+server.URL,
		environment(map[string]string{"AWS_CA_BUNDLE": authority}))
	if err != nil {
		t.Fatal(err)
	}
	v := newVault(t, s, dir, newClock().now)
	states := map[uint64]contents{}
	for seq := range uint64(4) {
		states[seq] = stateOf(int(seq), 1, int(seq)+2)
		states[seq]["000009.sst"] = strings.Repeat("many parts ", 2<<20)
		info := save(t, v, seq, states[seq])
		if seq > 0 && info.Uploaded > 1<<20 {
			t.Errorf("save %d uploaded %d bytes", seq, info.Uploaded)
		}
	}
	if fake.Uploads() == 0 {
		t.Error("no upload came in parts")
	}
	if n, err := v.Prune(t.Context(), 3); n != 3 || err != nil {
		t.Errorf("Prune = %d, %v, want a manifest, a log and a table", n, err)
	}
	if n := mustRestore(t, v, dir, states); n != 3 {
		t.Errorf("%d usable checkpoints", n)
	}
	for _, key := range fake.Keys() {
		if !strings.HasPrefix(key, "of/ours/some/where/3/") {
			t.Errorf("object %s is not below the prefix", key)
		}
	}

	// S3's own response identifies a missing object.
	for _, key := range objects(t, s) {
		if strings.Contains(key, "/files/") {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	infos := list(t, v)
	if _, err := restored(t, v, infos[0], filepath.Join(dir, "x")); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("Restore without files = %v, want ErrDamaged", err)
	}
	if !gocmp.Equal(ids(infos), []uint64{3, 2, 1}) || infos[0].Unusable == "" {
		t.Errorf("List = %+v", infos)
	}
}
