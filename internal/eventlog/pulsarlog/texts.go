package pulsarlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

// This file holds everything that we derive from texts in the client's log and errors,
// because the client reports it nowhere else. TestTexts pins the version of the client
// for which they were checked.

// Texts of the client's log. What it logs about a chunked message that was never
// completed does not matter: such a message does not exist.
const (
	textDiscarded  = "Discarding corrupted message"
	textClosing    = "closing or closed consumer" // by us
	textLostChunk  = "Received unexpected chunk messageId ["
	textRefused    = "Failed to establish connection with broker: '"
	textNoIdentity = "Failed to load auth credentials"
	fieldOfReader  = "subscription"
	fieldOfMessage = "msgID"
)

// The broker's codes, which the client passes on as text.
var (
	codesDenied    = []string{"AuthorizationError", "AuthenticationError", "not authorized"}
	codesGone      = []string{"TopicNotFound"}
	codesFenced    = []string{"ProducerFenced", "ProducerBusy", "producer fenced"}
	codesPermanent = []string{"InvalidTopicName", "UnsupportedVersionError", "NotAllowedError", "IncompatibleSchema", "TopicTerminated"}
)

// Errors of sending that the client does not export, and the broker's own text.
var textsTooLarge = []string{"exceeds MaxMessageSize", "maxMessageSize"}

// has reports whether an error's text contains one of several parts.
func has(err error, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(err.Error(), p) })
}

func tooLarge(err error) bool {
	return errors.Is(err, pulsar.ErrMessageTooLarge) || has(err, textsTooLarge)
}

// Texts of crypto/tls.
const (
	textAlert     = "remote error: tls: " // the broker's reason
	textUntrusted = "failed to verify certificate: "
)

// refusal is why there is no connection until a setting changes, or a file that it names.
type refusal int

const (
	notRefused  refusal = iota
	refusedUs           // the broker does not accept our credentials
	refusedThem         // we do not trust the broker's certificate
	noIdentity          // we have no credentials to show
)

// refused interprets a line of the client's log, or an error of the admin API.
func refused(text string) refusal {
	switch {
	case strings.HasPrefix(text, textRefused) && strings.Contains(strings.ToLower(text), "authent"), strings.Contains(text, textAlert):
		return refusedUs
	case strings.Contains(text, textUntrusted):
		return refusedThem
	case strings.HasPrefix(text, textNoIdentity):
		return noIdentity
	}
	return notRefused
}

// discards reports whether the client skips a message that it cannot decode.
func discards(text string) bool { return strings.HasPrefix(text, textDiscarded) }

// misses reports whether the client has a chunk of a message but not the first one,
// and for which entry, if the line names it.
func misses(text string) (at entryID, known, ok bool) {
	_, id, ok := strings.Cut(text, textLostChunk)
	if !ok {
		return at, false, false
	}
	n, err := fmt.Sscanf(id, "%d:%d:", &at.ledger, &at.entry)
	return at, err == nil && n == 2, true
}

// isOurClosing reports whether a line only says that we closed a consumer.
func isOurClosing(text string) bool { return strings.Contains(text, textClosing) }
