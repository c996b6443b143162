package cutover_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// TestTrimmedMeanwhile: the broker deletes a ledger after it has said that the topic holds it, and before we read it.
func TestTrimmedMeanwhile(t *testing.T) {
	for _, answer := range []string{"internalStats", "internal-info"} {
		t.Run(answer, func(t *testing.T) {
			w := newWorld(t, 1)
			entries := readRecording(t, "chaos")[:120]
			for i := range entries {
				entries[i].Partition = 0
			}
			w.subscribe(w.events.PartitionName(0), subscription).Close()
			w.publish(entries[:60], 4)
			applied := w.end(0)
			for w.acknowledged(0).Compare(eventlog.Position{Ledger: applied.Ledger, Entry: applied.Entry}) < 0 {
				w.armadaIngests(subscription, w.JobDB, 0, applied)
				w.must(w.unload())
			}
			w.publish(entries[60:], 4) // into a ledger of its own
			w.deletesAfter(answer)
			state, err := w.Inspect(t.Context())
			w.must(err)
			begin, err := w.events.Beginning(0)
			w.must(err)
			if begin == eventlog.Start {
				t.Fatal("the broker deleted nothing: ", w.stats(0))
			}
			// The position before the topic's beginning is that of its last message applied.
			if p := &state.Partitions[0]; p.Whole || p.Applied.Why != nil || p.Applied.At != begin && p.Applied.At != applied {
				t.Errorf("the topic is whole: %v, Armada's ingester has applied it up to %+v; it begins at %v", p.Whole, p.Applied, begin)
			}
		})
	}
}

// stats is what the broker says of the ledgers of a partition.
func (w *world) stats(partition int) string {
	w.Helper()
	name, err := utils.GetTopicName(w.events.PartitionName(partition))
	w.must(err)
	return w.admin(http.MethodGet, name.GetRestPath()+"/internalStats", "")
}

// acknowledged is up to where the broker knows that Armada's ingester has acknowledged a partition. An unload may lose acknowledgements that
// the broker has confirmed: of several in a second, it keeps only the first one durable at once.
func (w *world) acknowledged(partition int) (at eventlog.Position) {
	w.Helper()
	var stats struct {
		Cursors map[string]struct{ MarkDeletePosition string }
	}
	w.must(json.Unmarshal([]byte(w.stats(partition)), &stats))
	_, err := fmt.Sscanf(stats.Cursors[subscription].MarkDeletePosition, "%d:%d", &at.Ledger, &at.Entry)
	w.must(err)
	return at
}

// deletesAfter puts a proxy before the admin API. After its first answer of this kind, and before the client sees that,
// the broker deletes what all subscriptions have acknowledged.
func (w *world) deletesAfter(answer string) {
	w.Helper()
	broker := pulsartest.Shared(w.T)
	to, err := url.Parse(broker.AdminURL)
	w.must(err)
	name, err := utils.GetTopicName(w.events.PartitionName(0))
	w.must(err)
	var once sync.Once
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		if strings.HasSuffix(r.Request.URL.Path, "/"+answer) {
			once.Do(func() {
				w.admin(http.MethodPost, "namespaces/"+name.GetTenant()+"/"+name.GetNamespace()+"/retention", `{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}`)
				w.wait("the broker deletes a ledger", func() (bool, error) {
					w.admin(http.MethodPost, name.GetRestPath()+"/trim", "")
					begin, err := w.events.Beginning(0)
					return begin == eventlog.Start, err
				})
			})
		}
		return nil
	}
	server := httptest.NewServer(proxy)
	w.Cleanup(server.Close)
	tenant, namespace := name.GetTenant(), name.GetNamespace()
	w.Cluster, err = pulsarlog.Connect(w.Context(), pulsarlog.Config{ServiceURL: broker.URL, AdminURL: server.URL, Tenant: tenant, Namespace: namespace, OperationTimeout: pulsartest.Patience})
	w.must(err)
	w.Cleanup(func() { _ = w.Cluster.Close() })
}
