package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// permission is what a role may do on a topic.
type permission struct{ role, topic, action string }

// documentedPermissions reads the table of permissions in docs/operate.md.
func documentedPermissions(t *testing.T) (all []permission, topics []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(string(text), "`", "")
	_, table, _ := strings.Cut(plain, "| role of |")
	table, _, _ = strings.Cut(table, "\n\n")
	for n, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, " |"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case n == 0:
			topics = cells
		case n > 1:
			for i, cell := range cells[1:] {
				for action := range strings.SplitSeq(cell, ", ") {
					all = append(all, permission{cells[0], topics[i], action})
				}
			}
		}
	}
	if len(topics) != 4 || len(all) < 10 {
		t.Fatalf("docs/operate.md: no table of permissions: %v, %v", topics, all)
	}
	return all, topics
}

// grant gives roles exactly these permissions, on top of none.
func (w *world) grant(all []permission, topics []string) {
	w.t.Helper()
	actions := map[[2]string][]string{}
	for _, p := range all {
		at := [2]string{p.topic, p.role}
		actions[at] = append(actions[at], fmt.Sprintf("%q", p.action))
	}
	for _, topic := range topics {
		for _, role := range []string{"evaluator", "ingester", "reader"} {
			path := w.path(topic) + "/permissions/" + role
			if granted := actions[[2]string{topic, role}]; granted != nil {
				w.admin(http.MethodPost, path, "["+strings.Join(granted, ",")+"]")
			} else {
				w.admin(http.MethodPost, path, "[]")
			}
		}
	}
}

// permitted runs our programs with exactly the permissions that docs list; then without one of them, for each; and
// tries what is not listed.
func (s *secured) permitted() {
	w := newWorldOn(s.t, s.Broker, 1)
	s.CreateTopic(s.t, w.Topic("control-plane"), 0)
	all, topics := documentedPermissions(s.t)
	w.grant(all, topics)
	db := pgtest.Database(s.t)
	conn, err := pgx.Connect(s.t.Context(), db)
	w.must(err)
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	w.must(schema.Create(s.t.Context(), conn))
	for _, topic := range []string{"events-partition-0", "control-plane"} {
		w.admin(http.MethodPut, w.path(topic)+"/subscription/scheduler-ingester", `{"ledgerId":-1,"entryId":-1}`)
	}
	_, err = w.Ctl(w.ctx, "cutover", "start", "--job-db", db)
	w.must(err)
	w.Policies = filepath.Join(w.Dir, "policies")
	w.must(os.MkdirAll(w.Policies, 0o755))
	flags := map[string][]string{}
	for _, role := range []string{"evaluator", "ingester", "reader"} {
		flags[role] = s.flags(s.token(role, time.Now().Add(time.Hour))...)
	}
	round := 0
	// run feeds a job whose run is retried, by policies that are new, to an evaluator and an ingester, of which one
	// may be without a permission. It returns when all is done, or when that one says so.
	run := func(without permission) {
		round++
		policy := strings.NewReplacer("retryLimit: 2", fmt.Sprint("retryLimit: ", 2+round), "terminationSlack", "defaultPolicyName: retries, terminationSlack").Replace(heldBack)
		w.must(os.WriteFile(filepath.Join(w.Policies, "policies.yaml"), []byte(policy), 0o600))
		e, err := w.Evaluator(fmt.Sprint("a", round), nil, append(flags["evaluator"], "--policies-settle", "1ms")...)
		w.must(err)
		i, err := w.Ingester(fmt.Sprint("i", round), append(flags["ingester"], "--job-db", db, "--mode", "holdback")...)
		w.must(err)
		w.processes = append(w.processes, e, i)
		defer e.Kill()
		defer i.Kill()
		w.feedOne(fmt.Sprintf("c%04d", round))
		var end int64
		l, err := w.Open()
		w.must(err)
		defer l.Close()
		at, err := l.Events.End(0)
		w.must(err)
		end = at.Entry
		p := map[string]*Process{"evaluator": e, "ingester": i}[without.role]
		w.until(fmt.Sprintf("round %d, without %v", round, without), func() bool {
			if p != nil {
				return strings.Contains(p.Text(), "denied by the broker")
			}
			var done, control int64
			_ = conn.QueryRow(w.ctx, "SELECT coalesce(max(event_entry), 0) FROM refloat_positions").Scan(&done)
			_ = conn.QueryRow(w.ctx, "SELECT count(*) FROM refloat_control").Scan(&control)
			return done >= end && control > 0
		})
		if p == nil {
			for _, p := range []*Process{e, i} {
				if strings.Contains(p.Text(), "denied") || strings.Contains(p.Text(), "uthoriz") {
					s.t.Errorf("with every permission that docs list, %s says\n%s", p.Name, p.Tail())
				}
			}
		}
	}
	run(permission{})
	var retries int
	w.must(conn.QueryRow(w.ctx, "SELECT count(*) FROM refloat_decisions WHERE requeue").Scan(&retries))
	if retries == 0 {
		s.t.Error("nothing was retried, so no copy was published to events")
	}
	for _, args := range [][]string{
		{"verify"},
		{"record", "--topic", "decisions", "--out", filepath.Join(w.Dir, "record")},
		{"archive", "create", filepath.Join(w.Dir, "archive")},
	} {
		if out, err := w.alone(slices.Concat(args, flags["reader"], []string{"--pulsar-namespace", w.namespace()})...); err != nil {
			s.t.Errorf("%s as a reader: %v\n%s", args[0], err, out)
		}
	}
	for n, p := range all {
		if p.role == "reader" {
			continue
		}
		w.grant(slices.Delete(slices.Clone(all), n, n+1), topics)
		run(p)
	}
	w.grant(all, topics)
	s.nothingMore(w, all, topics)
}

// nothingMore tries everything that is not listed.
func (s *secured) nothingMore(w *world, all []permission, topics []string) {
	tries := map[string]func(c pulsar.Client, topic string) error{
		"produce": func(c pulsar.Client, topic string) error {
			p, err := c.CreateProducer(pulsar.ProducerOptions{Topic: topic})
			if err == nil {
				p.Close()
			}
			return err
		},
		"consume": func(c pulsar.Client, topic string) error {
			r, err := c.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
			if err == nil {
				r.Close()
			}
			return err
		},
	}
	names := map[string]string{"events": "events-partition-0", "decisions": "decisions-partition-0", "policies": "policies", "control-plane": "control-plane"}
	for _, role := range []string{"evaluator", "ingester", "reader"} {
		k, err := pulsarlog.Connect(s.t.Context(), pulsarlog.Config{
			ServiceURL: s.url, Auth: pulsarlog.Auth{TokenFile: s.file(role + ".token")}, TLS: pulsarlog.TLS{CAFile: s.roots},
		})
		w.must(err)
		defer k.Close()
		for _, topic := range topics {
			for _, action := range slices.Sorted(maps.Keys(tries)) {
				listed := slices.Contains(all, permission{role, topic, action})
				if err := tries[action](k.Client(), w.Topic(names[topic])); (err == nil) != listed {
					s.t.Errorf("%s may %s on %s: %v, and docs list it: %t", role, action, topic, err, listed)
				}
			}
		}
	}
}
