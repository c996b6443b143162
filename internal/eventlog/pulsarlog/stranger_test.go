package pulsarlog_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

func (b *bench) producer(topic string, o pulsar.ProducerOptions) pulsar.Producer {
	b.Helper()
	o.Topic = b.cluster.TopicName(topic) + "-partition-0"
	p, err := b.cluster.Client().CreateProducer(o)
	b.must(err)
	b.Cleanup(p.Close)
	return p
}

// Messages that others wrote, in ways of their own.
func TestStranger(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	p := b.producer("log", pulsar.ProducerOptions{DisableBatching: true})
	for _, m := range []*pulsar.ProducerMessage{
		{Key: "k", OrderingKey: "other", Payload: []byte("0"), EventTime: time.Unix(1, 0)},
		{Key: "null"},
		{Key: "empty", Payload: []byte{}, Properties: map[string]string{"a": "b"}},
		{Payload: []byte("half an origin"), Properties: map[string]string{"refloat-origin-recording": "r", "refloat-origin-position": "1:2:3"}},
		{Payload: []byte("odd"), Properties: map[string]string{
			"refloat-origin-recording": "r", "refloat-origin-position": "1:02:3", "refloat-origin-publish": "5",
		}},
		{Payload: []byte("origin"), Properties: map[string]string{
			"refloat-origin-recording": "r", "refloat-origin-position": "1:2:-1", "refloat-origin-publish": "5", "z": "1", "a": "2",
		}},
	} {
		_, err := p.Send(t.Context(), m)
		b.must(err)
	}
	got := b.read(topic, eventlog.Start).next(6)
	b.same(got, []eventlog.Message{
		{Payload: []byte("0")},
		{},
		{},
		{Payload: []byte("half an origin")},
		{Payload: []byte("odd")},
		{Payload: []byte("origin")},
	})
	for i, key := range []string{"k", "null", "empty", "", "", ""} {
		if got[i].Key != key {
			t.Errorf("message %d has key %q, want %q", i, got[i].Key, key)
		}
	}
	for i, n := range []int{0, 0, 1, 2, 3, 2} {
		if len(got[i].Properties) != n {
			t.Errorf("message %d has properties %v, want %d", i, got[i].Properties, n)
		}
	}
	want := eventlog.Origin{Recording: "r", Position: eventlog.Position{Ledger: 1, Entry: 2, Batch: -1}, Publish: 5}
	if got[5].Origin != want || got[5].Properties[0].Key != "a" || got[4].Origin != (eventlog.Origin{}) {
		t.Errorf("origin %+v, properties %v; want %+v", got[5].Origin, got[5].Properties, want)
	}
	if age := time.Since(time.Unix(0, got[0].Publish)); age < 0 || age > time.Hour {
		t.Errorf("published %v ago", age)
	}
	err := topic.Appender().AppendSync(t.Context(), 0, []eventlog.Message{{
		Origin: want, Properties: []eventlog.Property{{Key: "refloat-origin-publish", Value: "6"}},
	}})
	if err == nil {
		t.Error("a property took the place of an origin")
	}
}

// An empty message is one that the client's reader takes for damaged. Ours gives it,
// wherever it stands, and from wherever it is read.
func TestEmpty(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	p := b.producer("log", pulsar.ProducerOptions{DisableBatching: true})
	send := func(payloads ...string) {
		for _, payload := range payloads {
			// Neither null nor with properties, an empty message is one that the client cannot read.
			_, err := p.Send(t.Context(), &pulsar.ProducerMessage{Payload: []byte(payload)})
			b.must(err)
		}
	}
	want := []eventlog.Message{{}}
	send("")
	live := b.read(topic, eventlog.Start)
	b.same(live.next(1), want)
	for _, payload := range []string{"0", "", "", "1", ""} {
		send(payload)
		want = append(want, eventlog.Message{Payload: []byte(payload)})
		b.same(live.next(1), want[len(want)-1:])
	}
	b.unload("log") // and so a new ledger begins
	send("", "2")
	want = append(want, eventlog.Message{}, eventlog.Message{Payload: []byte("2")})
	b.same(live.next(2), want[6:])
	all := b.read(topic, eventlog.Start).next(8)
	b.same(all, want)
	for _, again := range []*pulsarlog.Topic{topic, b.reopened("log")} {
		for i := range all {
			b.same(b.read(again, all[i].Position).next(7-i), want[i+1:])
		}
	}
	if age := time.Since(time.Unix(0, all[0].Publish)); age < 0 || age > time.Hour {
		t.Errorf("published %v ago", age)
	}
}

// reopened is a topic on a connection of its own, which knows of nothing.
func (b *bench) reopened(name string) *pulsarlog.Topic {
	b.Helper()
	t, err := b.connect(b.config).Open(name)
	b.must(err)
	b.Cleanup(func() { shut(b, t) })
	return t
}

// The client's reader leaves out what it cannot decode. Ours stops there, unless it
// can find out that the message is empty.
func TestUndecodable(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	b.config.AdminURL = ""
	topic := b.reopened("log")
	p := b.producer("log", pulsar.ProducerOptions{DisableBatching: true})
	for _, payload := range []string{"0", "1", "2", "", "4"} {
		_, err := p.Send(t.Context(), &pulsar.ProducerMessage{Payload: []byte(payload)})
		b.must(err)
	}
	got, err := b.read(topic, eventlog.Start).try(5)
	b.class(err, eventlog.ErrCorrupt)
	b.same(got, numbers(0, 3))
	got, err = b.read(topic, got[2].Position).try(1)
	b.class(err, eventlog.ErrCorrupt)
	b.same(got, nil)
}

// A message in chunks stands where its last chunk stands.
func TestChunks(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	p := b.producer("log", pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 1000})
	var want []eventlog.Message
	for i := range 9 {
		payload := strings.Repeat("chunk ", 1+i%3*1000)
		_, err := p.Send(t.Context(), &pulsar.ProducerMessage{Payload: []byte(payload)})
		b.must(err)
		want = append(want, eventlog.Message{Payload: []byte(payload)})
	}
	all := b.read(topic, eventlog.Start).next(9)
	b.same(all, want)
	b.end(topic, all[8].Position)
	for i := range 8 {
		b.same(b.read(topic, all[i].Position).next(8-i), want[i+1:])
	}
	// From the middle of one, it cannot be read: not silently.
	middle := all[2].Position
	middle.Entry--
	r, err := topic.Open(0, middle)
	if err == nil {
		defer shut(t, r)
		_, err = reading{b, r}.try(1)
	}
	b.class(err, eventlog.ErrCorrupt)
}

// keys is a key pair by any name.
type keys struct{ public, private []byte }

func (k keys) PublicKey(name string, _ map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.public, nil), nil
}

func (k keys) PrivateKey(name string, _ map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.private, nil), nil
}

// What is encrypted is delivered as it is, an entry as one message.
func TestEncrypted(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	b.must(err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	b.must(err)
	pair := keys{
		public:  pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		private: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
	b.append(topic, numbers(0, 1)...)
	p := b.producer("log", pulsar.ProducerOptions{
		BatchingMaxPublishDelay: time.Hour,
		Encryption:              &pulsar.ProducerEncryptionInfo{KeyReader: pair, Keys: []string{"k"}},
	})
	for range 3 {
		p.SendAsync(t.Context(), &pulsar.ProducerMessage{Payload: []byte("secret")}, nil)
	}
	b.must(p.FlushWithCtx(t.Context()))
	all := b.read(topic, eventlog.Start).next(2)
	if strings.Contains(string(all[1].Payload), "secret") {
		t.Fatal("the test does not encrypt")
	}
	b.end(topic, all[1].Position)
	b.append(topic, numbers(1, 2)...)
	b.same(b.read(topic, all[1].Position).next(1), numbers(1, 2))
	if got := b.read(topic, all[0].Position).next(2); got[0].Position != all[1].Position {
		t.Fatalf("the encrypted entry is at %v, and was at %v", got[0].Position, all[1].Position)
	}
}
