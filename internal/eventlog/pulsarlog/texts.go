package pulsarlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

// This file holds everything that we know from the client's texts, of its log
// and of its errors, because it says it nowhere else. TestTexts pins the version
// of the client for which they were checked.

// What the client says in its log. Of a message in chunks that was never
// completed it says nothing that concerns us: there is no such message.
const (
	saysDiscarded  = "Discarding corrupted message"
	saysClosing    = "closing or closed consumer" // by us
	saysLostChunk  = "Received unexpected chunk messageId ["
	saysRefused    = "Failed to establish connection with broker: '"
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

// Errors of sending that the client does not export, and the broker's own word.
var textsTooLarge = []string{"exceeds MaxMessageSize", "maxMessageSize"}

// has says whether an error's text has one of several parts.
func has(err error, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(err.Error(), p) })
}

func tooLarge(err error) bool {
	return errors.Is(err, pulsar.ErrMessageTooLarge) || has(err, textsTooLarge)
}

// refusesUs says whether the broker does not know us, by a line of the log.
func refusesUs(text string) bool {
	return strings.HasPrefix(text, saysRefused) && strings.Contains(strings.ToLower(text), "authent")
}

// discards says whether the client leaves out a message that it cannot decode.
func discards(text string) bool { return strings.HasPrefix(text, saysDiscarded) }

// misses says whether the client has a chunk of a message, and not its first,
// and of which entry it says so, if that is known.
func misses(text string) (at entryID, known, ok bool) {
	_, id, ok := strings.Cut(text, saysLostChunk)
	if !ok {
		return at, false, false
	}
	n, err := fmt.Sscanf(id, "%d:%d:", &at.ledger, &at.entry)
	return at, err == nil && n == 2, true
}

// isOurClosing says whether a line only tells that we closed a consumer.
func isOurClosing(text string) bool { return strings.Contains(text, saysClosing) }
