package main

import (
	"strings"
	"testing"
)

func TestFailures(t *testing.T) {
	const events = `{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"fail","Package":"a","Test":"TestX/sub"}
{"Action":"fail","Package":"a","Test":"TestX"}
{"Action":"pass","Package":"b"}
{"Action":"fail","Package":"a"}
{"Action":"fail","Package":"c"}
`
	got, err := failures(strings.NewReader(events))
	if err != nil || len(got) != 2 || got[0].pkg != "a" || len(got[0].tests) != 1 || got[0].tests[0] != "TestX" || got[1].pkg != "c" || got[1].tests != nil {
		t.Errorf("failures = %v, %v, want TestX of a, and c without a test", got, err)
	}
	if _, err := failures(strings.NewReader("{")); err == nil {
		t.Error("half an event is no error")
	}
}

func TestSeeded(t *testing.T) {
	for flag, want := range map[string]bool{"-shuffle=17": true, "-shuffle=on": false, "-shuffle=": false, "-short": false} {
		if seeded(flag) != want {
			t.Errorf("seeded(%q) = %v, want %v", flag, !want, want)
		}
	}
}

// TestWaiting: the end-to-end tests wait for a broker, and the policy engine does not.
func TestWaiting(t *testing.T) {
	all, err := waiting("../../..")
	if err != nil {
		t.Fatal(err)
	}
	text := " " + strings.Join(all, " ") + " "
	for pkg, want := range map[string]bool{"internal/test/e2e": true, "internal/test/armadabox": true, "internal/eventlog/pulsarlog": true, "internal/policy": false, "internal/web": false} {
		if strings.Contains(text, " github.com/refloat/refloat/"+pkg+" ") != want {
			t.Errorf("%s waits: want %v; all that do:%s", pkg, want, text)
		}
	}
}
