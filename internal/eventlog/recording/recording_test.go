package recording

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/eventlog"
)

const files = "../../../testdata/recordings"

func zipped(t testing.TB, text string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func readAll(in io.Reader, path string) ([]Entry, error) {
	r, err := NewReader(in, path)
	if err != nil {
		return nil, err
	}
	var es []Entry
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return es, r.Close()
		}
		if err != nil {
			return es, err
		}
		es = append(es, e)
	}
}

func TestRecordings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"plain": 1559, "chaos": 630, "retried": 2298, "preempted": 288} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es, err := ReadFile(filepath.Join(files, name+".jsonl.gz"))
			if err != nil {
				t.Fatal(err)
			}
			if len(es) != want {
				t.Fatalf("ReadFile gave %d entries, want %d", len(es), want)
			}
			for i, e := range es {
				m := e.Message
				if m.Origin.Recording != name || m.OriginPosition() != m.Position || m.OriginPublish() != m.Publish || e.Producer == "" || len(m.Payload) == 0 {
					t.Fatalf("entry %d is %+v", i, e)
				}
				if p := eventlog.PartitionFor(m.Key, 3); p != e.Partition {
					t.Fatalf("entry %d, key %q: partition %d, routed to %d", i, m.Key, e.Partition, p)
				}
			}
			// Writing and reading it again gives the same, line by line.
			var b bytes.Buffer
			write(t, &b, es)
			again, err := readAll(bytes.NewReader(b.Bytes()), name+".jsonl.gz")
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(es, again) { // cmp.Diff takes a minute for this under the race detector
				t.Fatal("written and read again, the entries are others")
			}
			if got, want := unzip(t, &b), unzip(t, open(t, name)); !bytes.Equal(got, want) {
				t.Fatalf("the lines written are not those read")
			}
		})
	}
}

func open(t *testing.T, name string) io.Reader {
	b, err := os.ReadFile(filepath.Join(files, name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b)
}

func unzip(t *testing.T, in io.Reader) []byte {
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, out io.Writer, es []Entry) {
	t.Helper()
	w := NewWriter(out)
	for _, e := range es {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	const good = `{"partition":0,"ledger":1,"entry":2,"batch":0,"key":"k","publish_time":"2026-11-20T23:39:35.494Z","payload":"AQI=","new":{"field":[1]}}` + "\n"
	line := func(old, with string) string {
		return good + strings.Replace(strings.Replace(good, `"entry":2`, `"entry":3`, 1), old, with, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"good", line("", ""), ""},
		{"no batch", line(`"batch":0,`, ``), ""},
		{"json", line(`"key":"k"`, `"key":`), "dir/x.jsonl.gz:2: "},
		{"type", line(`"key":"k"`, `"key":7`), "x.jsonl.gz:2: key: want a string"},
		{"two values", line("}}\n", "}} {}\n"), "x.jsonl.gz:2: this line is not a message"},
		{"empty line", good + "\n", "x.jsonl.gz:2: this line is not a message"},
		{"no end", strings.TrimSuffix(line("", ""), "\n"), "x.jsonl.gz:2: the last line is incomplete"},
		{"base64 character", line("AQI=", "AQ!="), "x.jsonl.gz:2: payload: illegal base64"},
		{"base64 padding", line("AQI=", "AQI"), "x.jsonl.gz:2: payload: illegal base64"},
		{"base64 loose bits", line("AQI=", "AQJ="), "x.jsonl.gz:2: payload: illegal base64"},
		{"base64 line end", line("AQI=", `AQ\nI=`), "x.jsonl.gz:2: payload: illegal base64"},
		{"time", line("2026-11-20T", "2026-11-20 "), "x.jsonl.gz:2: publish_time "},
		{"time range", line("2026-11-20T", "2626-11-20T"), "x.jsonl.gz:2: publish_time 2626-11-20T23:39:35.494Z is out of range"},
		{"partition missing", line(`"partition":0,`, ``), `x.jsonl.gz:2: "partition" is missing`},
		{"payload missing", line(`"payload":"AQI=",`, ``), `x.jsonl.gz:2: "payload" is missing`},
		{"payload null", line(`"AQI="`, `null`), `x.jsonl.gz:2: "payload" is missing`},
		{"partition negative", line(`"partition":0`, `"partition":-1`), "x.jsonl.gz:2: partition -1 is negative"},
		{"same position", good + good, "x.jsonl.gz:2: position 1:2:0 follows 1:2:0 in partition 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			es, err := readAll(zipped(t, c.text), "dir/x.jsonl.gz")
			if c.want == "" {
				if err != nil || len(es) != 2 {
					t.Fatalf("%d entries, error %v", len(es), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, want %q", err, c.want)
			}
		})
	}
}

func TestDamagedGzip(t *testing.T) {
	t.Parallel()
	want, err := readAll(open(t, "preempted"), "p.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	want = want[:20]
	var b bytes.Buffer
	write(t, &b, want)
	whole := b.Bytes()
	for n := 0; n < len(whole); n += 29 {
		if _, err := readAll(bytes.NewReader(whole[:n]), "p.jsonl.gz"); err == nil {
			t.Fatalf("cut at %d of %d bytes: no error", n, len(whole))
		}
		flipped := bytes.Clone(whole)
		flipped[n] ^= 4
		if got, err := readAll(bytes.NewReader(flipped), "p.jsonl.gz"); err == nil && !reflect.DeepEqual(want, got) {
			t.Fatalf("bit flipped in byte %d: other entries, no error", n)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	t.Parallel()
	at := eventlog.Position{Ledger: 1, Entry: 1}
	for name, e := range map[string]Entry{
		"partition":    {Partition: -1, Message: eventlog.Message{Position: at}},
		"order":        {Message: eventlog.Message{}},
		"key":          {Message: eventlog.Message{Position: at, Key: "\xff"}},
		"property":     {Message: eventlog.Message{Position: at, Properties: []eventlog.Property{{Key: "a", Value: "\xff"}}}},
		"two the same": {Message: eventlog.Message{Position: at, Properties: []eventlog.Property{{Key: "a"}, {Key: "a"}}}},
	} {
		w := NewWriter(io.Discard)
		if err := w.Write(Entry{}); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(e); err == nil {
			t.Errorf("%s: Write gave no error", name)
		}
	}
	w := NewWriter(io.Discard)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Write(Entry{}) == nil || w.Close() == nil {
		t.Error("a closed writer writes")
	}
	if _, err := Open("none.jsonl.gz"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of no file: %v", err)
	}
}

// Everything written is read back.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want []Entry
		for i := range rapid.IntRange(0, 20).Draw(t, "n") {
			e := Entry{Partition: rapid.IntRange(0, 2).Draw(t, "partition"), Producer: rapid.String().Draw(t, "producer")}
			m := &e.Message
			m.Position = eventlog.Position{
				Ledger: int64(i) / 3, Entry: int64(i),
				Batch: rapid.Int32Range(-1, 5).Draw(t, "batch"),
			}
			m.Publish = rapid.Int64().Draw(t, "publish")
			m.Key = rapid.String().Draw(t, "key")
			m.Payload = rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")
			props := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "properties")
			m.Properties = sortedProperties(props)
			m.Origin = eventlog.Origin{Recording: "r", Position: m.Position, Publish: m.Publish}
			want = append(want, e)
		}
		var b bytes.Buffer
		w := NewWriter(&b)
		for _, e := range want {
			e.Message.Position, e.Message.Publish = eventlog.Position{Entry: 9}, 9 // where it was fed to
			if err := w.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(&b, "r.jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"partition":0,"ledger":1,"entry":2,"batch":0,"key":"k","publish_time":"2026-11-20T23:39:35.494Z","payload":"AQI="}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		es, err := readAll(zipped(t, string(text)), "f.jsonl.gz")
		if err != nil {
			return
		}
		// Everything accepted is written and read back unchanged.
		var b bytes.Buffer
		write(t, &b, es)
		again, err := readAll(&b, "f.jsonl.gz")
		if err != nil {
			t.Fatalf("read again: %v", err)
		}
		if diff := cmp.Diff(es, again); diff != "" {
			t.Fatalf("read again (-want +got):\n%s", diff)
		}
	})
}
