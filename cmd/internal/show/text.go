package show

import (
	"encoding/json"
	"io"
	"time"

	"github.com/refloat/refloat/internal/query"
)

// JSONLines returns an encoder that writes one object a line.
func JSONLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// Millis shortens a time to milliseconds, for people; JSON has it in full.
func Millis(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return at.Format("2006-01-02T15:04:05.000Z07:00")
}

// Rounded is a duration for people: to a second from a minute on, to a millisecond below.
func Rounded(text string) string {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return query.OneLine(text)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
