package events

import (
	"bytes"
	"fmt"
	"testing"
)

// FuzzDecode holds the two decoders together on any bytes.
func FuzzDecode(f *testing.F) {
	for _, tt := range rules {
		if len(tt.payload) < 4096 {
			f.Add(tt.payload)
		}
	}
	// Of what Armada sends, one message for each sequence of kinds.
	shapes := map[string]bool{}
	for _, name := range recordings {
		for _, payload := range recording(f, name) {
			s, _, err := reference(payload)
			if err != nil || len(s.Events) > 6 {
				continue
			}
			var shape string
			for _, ev := range s.Events {
				shape += fmt.Sprintf("%d ", ev.Kind)
			}
			if !shapes[shape] {
				shapes[shape] = true
				f.Add(payload)
			}
		}
	}
	if len(shapes) < 24 {
		f.Errorf("%d shapes of recorded messages: too few", len(shapes))
	}

	other := sequence("q", "s", msg(1, annotated(gang, "g"), podSpec(msg(20, str(1, "i")))), failed(terminalError(msg(8, msg(5, vint(2, 1))))))
	var d Decoder
	f.Fuzz(func(t *testing.T, payload []byte) {
		before := bytes.Clone(payload)
		if diff := disagree(&d, payload); diff != "" {
			t.Fatalf("%s\npayload: %q", diff, payload)
		}
		if m, err := Read(payload); err == nil {
			checkRaw(t, payload, m)
		}
		// Once more, after another message.
		if _, err := d.Decode(other); err != nil {
			t.Fatal(err)
		}
		if diff := disagree(&d, payload); diff != "" {
			t.Fatalf("the second time: %s\npayload: %q", diff, payload)
		}
		if !bytes.Equal(before, payload) {
			t.Fatalf("the payload was written to\npayload: %q", before)
		}
	})
}
