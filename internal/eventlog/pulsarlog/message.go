package pulsarlog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
)

// The origin of a message is stored in three properties. They are an origin only
// together, and only in the exact form that we write.
const (
	originRecording = "refloat-origin-recording"
	originPosition  = "refloat-origin-position" // ledger:entry:batch
	originPublish   = "refloat-origin-publish"  // Unix nanoseconds
)

// message converts a message that was received at a position.
func message(m pulsar.Message, at eventlog.Position) eventlog.Message {
	out := eventlog.Message{Position: at, Publish: m.PublishTime().UnixNano(), Key: m.Key(), Payload: m.Payload()}
	properties := m.Properties()
	if len(properties) == 0 {
		return out
	}
	origin, fed := parseOrigin(properties)
	out.Origin = origin
	for k, v := range properties {
		if fed && isOrigin(k) {
			continue
		}
		out.Properties = append(out.Properties, eventlog.Property{Key: k, Value: v})
	}
	slices.SortFunc(out.Properties, func(a, b eventlog.Property) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func isOrigin(key string) bool {
	return key == originRecording || key == originPosition || key == originPublish
}

func parseOrigin(properties map[string]string) (eventlog.Origin, bool) {
	recording := properties[originRecording]
	if recording == "" {
		return eventlog.Origin{}, false
	}
	at, atErr := eventlog.ParsePosition(properties[originPosition])
	publish, err := strconv.ParseInt(properties[originPublish], 10, 64)
	if atErr != nil || err != nil || strconv.FormatInt(publish, 10) != properties[originPublish] {
		return eventlog.Origin{}, false
	}
	return eventlog.Origin{Recording: recording, Position: at, Publish: publish}, true
}

// producerMessage converts a message for publishing. An empty payload is sent as no
// payload, because the client cannot read an empty one outside a batch.
func producerMessage(m eventlog.Message) (*pulsar.ProducerMessage, error) {
	out := &pulsar.ProducerMessage{Key: m.Key, Payload: m.Payload}
	if len(m.Payload) == 0 {
		out.Payload = nil
	}
	fed := m.Origin.Recording != ""
	if len(m.Properties) == 0 && !fed {
		return out, nil
	}
	out.Properties = make(map[string]string, len(m.Properties)+3)
	for _, p := range m.Properties {
		if _, twice := out.Properties[p.Key]; twice {
			return nil, fmt.Errorf("duplicate property %q: each may have only one value", p.Key)
		}
		if fed && isOrigin(p.Key) {
			return nil, fmt.Errorf("property %q is reserved for the message's origin: rename it", p.Key)
		}
		out.Properties[p.Key] = p.Value
	}
	if fed {
		out.Properties[originRecording] = m.Origin.Recording
		out.Properties[originPosition] = m.Origin.Position.String()
		out.Properties[originPublish] = strconv.FormatInt(m.Origin.Publish, 10)
	}
	return out, nil
}
