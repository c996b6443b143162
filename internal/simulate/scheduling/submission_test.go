package scheduling

import (
	"testing"
	"time"
)

func TestSubmit(t *testing.T) {
	t.Parallel()
	limits := Limits{MaximumGracePeriod: 5 * time.Minute, DefaultDeadline: 72 * time.Hour}
	for _, row := range []struct{ grace, deadline, wantGrace, wantDeadline, refused string }{
		{"", "", "1s", "72h", ""},
		{"0s", "", "1s", "72h", ""},
		{"1ns", "", "", "", "graceful termination period of 1ns: must be 0s, or between 1s and 5m0s"},
		{"999ms", "", "", "", "graceful termination period of 999ms: must be 0s, or between 1s and 5m0s"},
		{"-1s", "", "", "", "graceful termination period of -1s: must be 0s, or between 1s and 5m0s"},
		{"1s", "1h", "1s", "1h", ""},
		{"5m", "100h", "5m", "100h", ""},
		{"301s", "", "", "", "graceful termination period of 5m1s: must be 0s, or between 1s and 5m0s"},
		{"", "0s", "", "", "deadline of 0s: must be positive"},
	} {
		got, err := limits.Submit(Times{duration(t, row.grace), duration(t, row.deadline)})
		if row.refused != "" {
			if err == nil || err.Error() != row.refused {
				t.Errorf("%+v: %v", row, err)
			}
			continue
		}
		if err != nil || *got.GracePeriod != *duration(t, row.wantGrace) || *got.Deadline != *duration(t, row.wantDeadline) {
			t.Errorf("%+v: %v, %v, %v", row, *got.GracePeriod, *got.Deadline, err)
		}
	}
	if got, err := (Limits{}).Submit(Times{}); err != nil || got.Deadline != nil || *got.GracePeriod != time.Second {
		t.Errorf("without limits: %v, %v", got, err)
	}
}

func duration(t *testing.T, s string) *time.Duration {
	t.Helper()
	if s == "" {
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

func TestParseGang(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		id, cardinality, minimum, label string
		want                            Gang
		refused                         string
	}{
		{want: Gang{}},
		{id: "g", cardinality: "3", want: Gang{"g", 3, 3, ""}},
		{id: "g", cardinality: "3", minimum: "2", label: "rack", want: Gang{"g", 3, 2, "rack"}},
		{id: "g", refused: `armadaproject.io/gangCardinality is "": must be a number, at least 1`},
		{id: "g", cardinality: "0", refused: `armadaproject.io/gangCardinality is "0": must be a number, at least 1`},
		{id: "g", cardinality: "x", refused: `armadaproject.io/gangCardinality is "x": must be a number, at least 1`},
		{id: "g", cardinality: "3", minimum: "4", refused: `armadaproject.io/gangMinimumCardinality is "4": must be a number between 1 and the cardinality 3`},
		{id: "g", cardinality: "3", minimum: "0", refused: `armadaproject.io/gangMinimumCardinality is "0": must be a number between 1 and the cardinality 3`},
		{cardinality: "3", refused: "annotations of a gang, but no armadaproject.io/gangId"},
	} {
		annotations := map[string]string{}
		for name, value := range map[string]string{
			AnnotationGangID: row.id, AnnotationGangCardinality: row.cardinality,
			AnnotationGangMinimumCardinality: row.minimum, AnnotationGangNodeUniformityLabel: row.label,
		} {
			if value != "" {
				annotations[name] = value
			}
		}
		got, err := ParseGang(annotations)
		if row.refused != "" && (err == nil || err.Error() != row.refused) || row.refused == "" && err != nil || got != row.want {
			t.Errorf("%v: %v, %v", annotations, got, err)
		}
	}
}
