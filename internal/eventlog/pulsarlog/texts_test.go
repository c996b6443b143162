package pulsarlog

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkedClient is the version of the client whose texts were checked.
const checkedClient = "v0.21.0"

// TestTexts fails when the client is upgraded, and when it no longer has a text
// that we depend on.
func TestTexts(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-json", "github.com/apache/pulsar-client-go").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var client struct{ Version, Dir string }
	if err := json.Unmarshal(out, &client); err != nil {
		t.Fatal(err)
	}
	if client.Version != checkedClient {
		t.Errorf(`the Pulsar client is %s, and texts.go was checked for %s. Check, in the client's sources:
 1. consumer_partition.go: discardCorruptedMessage still logs %q with the field %q;
    processMessageChunk still logs %q and then ledger:entry:
 2. internal/connection.go still logs %q with the broker's words for a refused authentication, and %q with the error
 3. error.go, internal/commands.go, producer_partition.go: the names of the broker's codes, and of what is too large
 4. SubLogger still gets the field %q of a reader's consumer
then run the tests of this package and of internal/test/e2e on a real broker (REQUIRE_INTEGRATION=1), and set checkedClient`,
			client.Version, checkedClient, textDiscarded, fieldOfMessage, textLostChunk, textRefused, textNoIdentity, fieldOfReader)
	}
	var sources []byte
	err = filepath.WalkDir(filepath.Join(client.Dir, "pulsar"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		sources = append(sources, b...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ofBroker := []string{"not authorized", "maxMessageSize", "producer fenced", "ProducerFenced", "TopicTerminated"} // these may come from the broker alone
	for _, text := range slices.Concat([]string{textDiscarded, textClosing, textLostChunk, textRefused, textNoIdentity, `"` + fieldOfReader + `"`, `"` + fieldOfMessage + `"`},
		codesDenied, codesGone, codesFenced, codesPermanent, textsTooLarge) {
		if !slices.Contains(ofBroker, text) && !bytes.Contains(sources, []byte(text)) {
			t.Errorf("the client no longer says %q", text)
		}
	}
}

func TestMisses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text      string
		at        entryID
		known, ok bool
	}{
		{"[topic] [sub] Received unexpected chunk messageId [12:7:-1], last-chunk-id [-1]", entryID{12, 7}, true, true},
		{"Received unexpected chunk messageId [none]", entryID{}, false, true},
		{"Received a chunk", entryID{}, false, false},
	}
	for _, tt := range tests {
		if at, known, ok := misses(tt.text); at != tt.at || known != tt.known || ok != tt.ok {
			t.Errorf("misses(%q) = %v, %v, %v", tt.text, at, known, ok)
		}
	}
}
