package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
)

// keys is a key pair that nobody of ours has.
type keys struct{ public []byte }

func (k keys) PublicKey(name string, _ map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.public, nil), nil
}

func (k keys) PrivateKey(string, map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return nil, os.ErrNotExist
}

func newKeys(t *testing.T) keys {
	t.Helper()
	pair, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&pair.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return keys{pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})}
}

// TestStrangers: what others write to our topics stops nothing. What cannot be
// read is parked, what is no envelope of the chain is ignored and counted.
func TestStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.evaluator("a")
	ingester := w.ingester("one")
	w.feedOne("c0001")
	w.must(w.Settled(w.ctx))
	before := w.chainNow()

	l, err := w.Open()
	w.must(err)
	defer l.Close()
	send := func(o pulsar.ProducerOptions, m *pulsar.ProducerMessage) {
		t.Helper()
		o.Topic = l.Events.PartitionName(0)
		p, err := l.Cluster.Client().CreateProducer(o)
		w.must(err)
		defer p.Close()
		_, err = p.Send(w.ctx, m)
		w.must(err)
	}
	failure := func(job string) []byte {
		b, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "strange", Events: []*pb.Event{
			{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: "r", Errors: []*pb.Error{{Terminal: true}}}}},
		}})
		w.must(err)
		return b
	}
	plain := pulsar.ProducerOptions{DisableBatching: true}
	send(plain, &pulsar.ProducerMessage{Payload: failure("no key")})
	send(plain, &pulsar.ProducerMessage{Key: "of another job set", Payload: failure("wrong key")})
	send(plain, &pulsar.ProducerMessage{Key: "k", Payload: marker(t)})
	big := strings.Repeat("x", 20_000)
	send(pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 5000}, &pulsar.ProducerMessage{Key: "k", Payload: failure("chunked " + big)})
	const parked = 4
	send(plain, &pulsar.ProducerMessage{Key: "k", Payload: []byte("\xff\xff garbage")})
	send(plain, &pulsar.ProducerMessage{Key: "k"}) // null
	send(pulsar.ProducerOptions{}, &pulsar.ProducerMessage{Key: "k", Payload: []byte{}, Properties: map[string]string{"a": "b"}})
	send(pulsar.ProducerOptions{DisableBatching: true, Encryption: &pulsar.ProducerEncryptionInfo{KeyReader: newKeys(t), Keys: []string{"theirs"}}},
		&pulsar.ProducerMessage{Key: "k", Payload: failure("encrypted")})

	var old []byte
	w.must(Each(l.Decisions, 0, func(m eventlog.Message) error {
		if old == nil {
			old = m.Payload // the first claim
		}
		return nil
	}))
	rogue, err := NewRogue(w.URL, w.AdminURL)
	w.must(err)
	defer rogue.Close()
	leave, err := rogue.Fence(w.ctx, l.Decisions.PartitionName(0), []byte("\xff\xff garbage"), []byte("a stranger's message"), old, old[:len(old)/2])
	w.must(err)
	leave()

	w.feedOne("c0002")
	sum := w.settledAndRight()
	after := w.chainNow()
	if got := after.Parked - before.Parked; got != parked {
		t.Errorf("%d messages were parked, want %d", got, parked)
	}
	for _, job := range []string{"no key", "wrong key", "chunked " + big} {
		if after.Records[Run{job, "r"}] != 1 {
			t.Errorf("the failed run of job %.20q has %d records, want 1", job, after.Records[Run{job, "r"}])
		}
	}
	if sum.Ignored["malformed"] != 3 || sum.Ignored["lost_claim"] != 1 {
		t.Errorf("ignored %v, want 3 malformed and 1 lost_claim", sum.Ignored)
	}
	m := w.scrape(a)
	if got := m.Sum("refloat_parked_total"); got < parked {
		t.Errorf("refloat_parked_total is %v, want at least %d", got, parked)
	}
	if got := m.Sum("refloat_ignored_envelopes_total", `why="malformed"`); got < 3 {
		t.Errorf("refloat_ignored_envelopes_total of malformed is %v, want at least 3", got)
	}
	documented(t, m, w.scrape(ingester))
}

// marker is a partition marker, as Armada's scheduler writes it.
func marker(t *testing.T) []byte {
	t.Helper()
	const eventsOfSequence, markerOfEvent, partitionOf, groupOf = 5, 20, 2, 3
	b := protowire.AppendVarint(protowire.AppendTag(nil, partitionOf, protowire.VarintType), 0)
	b = protowire.AppendString(protowire.AppendTag(b, groupOf, protowire.BytesType), "7a1e2f62-29bb-4f0e-9d0b-2a35d3a3e5ad")
	b = protowire.AppendBytes(protowire.AppendTag(nil, markerOfEvent, protowire.BytesType), b)
	seq, err := proto.Marshal(&pb.EventSequence{Queue: "armada-scheduler", JobSetName: "armada-scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	return protowire.AppendBytes(protowire.AppendTag(seq, eventsOfSequence, protowire.BytesType), b)
}

// documented: each metric that a document or an alert names is served.
func documented(t *testing.T, served ...Metrics) {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/*/*"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	name := regexp.MustCompile(`\brefloat_[a-z_]*[a-z]\b`)
	named := map[string]string{
		"refloat_partition_live": "this test", "refloat_refused": "this test", "refloat_lag_seconds": "this test", "refloat_lag_messages": "this test",
		"refloat_decisions_total": "this test", "refloat_jobdb_lag_messages": "this test", "refloat_jobdb_partition_active": "this test",
		"refloat_read_back_seconds": "this test", "refloat_commit_seconds": "this test", "refloat_policy_generation": "this test",
	}
	tables, err := os.ReadFile(filepath.Join("..", "..", "jobdb", "postgres", "schema.go")) // they have such names, too
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a directory
		}
		for _, n := range name.FindAllString(string(text), -1) {
			if !strings.Contains(string(tables), n) {
				named[n] = file
			}
		}
	}
	source, err := os.ReadFile(filepath.Join("..", "..", "app", "metricsets.go"))
	if err != nil {
		t.Fatal(err)
	}
	for n, where := range named {
		has := false
		for _, m := range served {
			has = has || m.Has(n)
		}
		// Those with labels appear with their first use, such as a refusal.
		if !has && !strings.Contains(string(source), `"`+strings.TrimPrefix(n, "refloat_")+`"`) {
			t.Errorf("%s, which %s names, is not served", n, where)
		}
	}
}
