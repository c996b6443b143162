package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// At is the position in the logs that a state has reached. A restore compares Seq and
// Link with the chain.
type At struct {
	Seq       uint64 `json:"seq"`       // of the last envelope in the state
	Link      string `json:"link"`      // its hash, in hex
	Events    string `json:"events"`    // position of the last event in it
	Decisions string `json:"decisions"` // position of that envelope
}

// Info describes a listed checkpoint.
type Info struct {
	At
	Partition int
	ID        string
	Format    int // of the state; see Config
	Taken     time.Time
	Bytes     int64 // of all files
	Uploaded  int64 // of these, bytes that were not in the storage before
	Files     int
	Unusable  string // why it cannot be restored; empty: it is usable
}

// manifest lists what a checkpoint consists of.
type manifest struct {
	At
	Partition int    `json:"partition"`
	Format    int    `json:"format"`
	Taken     int64  `json:"taken"` // Unix nanoseconds
	Complete  bool   `json:"complete"`
	Uploaded  int64  `json:"uploaded"`
	Files     []file `json:"files"`
}

// file is one file of a state directory, stored in an object or in the manifest.
type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Object string `json:"object,omitempty"` // below files/
	Data   []byte `json:"data,omitempty"`

	fresh bool // must be uploaded
}

const (
	manifestMagic   = "refloat-checkpoint"
	manifestVersion = 1
	manifestLimit   = 64 << 20
	inlineLimit     = 4 << 10
)

var (
	// errNewer reports a manifest of a newer version of the program.
	errNewer  = errors.New("written by a newer program: upgrade this one")
	errBroken = errors.New("manifest is damaged")
)

func (m *manifest) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return fmt.Appendf(nil, "%s %d %s\n%s", manifestMagic, manifestVersion, hexSum(body), body), nil
}

func decodeManifest(b []byte) (*manifest, error) {
	head, body, _ := bytes.Cut(b, []byte("\n"))
	var magic, sum string
	var version int
	if n, _ := fmt.Sscanf(string(head[:min(len(head), 200)]), "%s %d %s", &magic, &version, &sum); n < 2 || magic != manifestMagic {
		return nil, fmt.Errorf("%w: invalid header", errBroken)
	}
	if version > manifestVersion {
		return nil, fmt.Errorf("manifest of version %d: %w", version, errNewer)
	}
	if version != manifestVersion || sum != hexSum(body) {
		return nil, fmt.Errorf("%w: checksum mismatch", errBroken)
	}
	m := &manifest{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return m, m.check()
}

// check rejects names that lead out of a directory, and impossible values.
func (m *manifest) check() error {
	seen := map[string]bool{}
	for _, f := range m.Files {
		switch {
		case f.Name == "" || f.Name != filepath.Base(f.Name) || !filepath.IsLocal(f.Name) || f.Name == "." || strings.ContainsRune(f.Name, '\\') || seen[f.Name]:
			return fmt.Errorf("%w: file name %q", errBroken, f.Name)
		case strings.Contains(f.Object, "/") || f.Size < 0 || f.Object == "" && f.Size != int64(len(f.Data)):
			return fmt.Errorf("%w: file %s", errBroken, f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

func (m *manifest) info(id string) Info {
	info := Info{
		At: m.At, Partition: m.Partition, ID: id, Format: m.Format, Taken: time.Unix(0, m.Taken).UTC(),
		Uploaded: m.Uploaded, Files: len(m.Files),
	}
	for _, f := range m.Files {
		info.Bytes += f.Size
	}
	return info
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
