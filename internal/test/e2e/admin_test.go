package e2e

import (
	"io"
	"net/http"
	"strings"
)

// admin asks the broker's admin API for something that our programs never do.
func (w *world) admin(method, path, body string) {
	w.t.Helper()
	w.request(method, path, body)
}

// ask asks the broker's admin API a question.
func (w *world) ask(path string) []byte {
	w.t.Helper()
	return w.request(http.MethodGet, path, "")
}

func (w *world) request(method, path, body string) []byte {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, w.AdminURL+"/admin/v2/"+path, strings.NewReader(body))
	w.must(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	w.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	w.must(err)
	if resp.StatusCode/100 != 2 {
		w.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return text
}

func (w *world) path(topic string) string { return "persistent/" + w.Namespace + "/" + topic }

// truncate deletes all ledgers of a partition but the one that is open, which
// unloading makes an empty one.
func (w *world) truncate(partition string) {
	w.t.Helper()
	w.must(w.broker.Truncate(w.Topic(partition)))
}

// recreate deletes a topic, whoever uses it, and makes it again.
func (w *world) recreate(topic string, partitions int) {
	w.t.Helper()
	w.admin(http.MethodDelete, w.path(topic)+"/partitions?force=true", "")
	w.broker.CreateTopic(w.t, w.Topic(topic), partitions)
}
