package e2e

import (
	"testing"
	"time"
)

// TestSlowOwner: an owner whose messages wait in the network, and whose right
// to publish the broker does not guard, publishes after the next one's claim.
// Nobody takes what it says.
func TestSlowOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var all []*Process
	var proxies []*Proxy
	for _, name := range []string{"a", "b"} {
		proxy, err := NewProxy(w.URL, w.AdminURL)
		w.must(err)
		t.Cleanup(func() { _ = proxy.Close() })
		proxy.Shared.Store(true)
		p := w.started(w.Evaluator(name, proxy))
		all, proxies = append(all, p), append(proxies, proxy)
	}
	w.ingester("one")
	w.live(1, all...)
	owner := 0
	if w.scrape(all[1]).Sum("refloat_partition_live") == 1 {
		owner = 1
	}
	w.feedOne("c0001")
	w.must(w.Settled(w.ctx))
	proxies[owner].Set(Mute)
	w.feedOne("c0002") // it reads that, and what it says of it waits
	began := time.Now()
	w.live(1, all[1-owner])
	t.Logf("taken over after %v", time.Since(began))
	w.must(w.Settled(w.ctx))
	proxies[owner].Set(Whole)
	w.until("its envelope arrives", func() bool { return w.chainNow().Ignored["old_epoch"] > 0 })
	w.feedOne("c0003")
	sum := w.settledAndRight()
	t.Logf("ignored: %v", sum.Ignored)
}
