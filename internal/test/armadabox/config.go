package armadabox

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/pulsartest"
)

// settings is a configuration file: YAML takes JSON.
type settings map[string]any

// configure writes what differs from the overrides that came with the box.
func (a *Armada) configure(t testing.TB) {
	t.Helper()
	free, err := pulsartest.FreePorts(10)
	if err != nil {
		t.Fatal(err)
	}
	a.server, a.scheduler, a.redis, a.API = local(free[0]), local(free[1]), local(free[2]), local(free[9])
	pulsar := settings{
		"URL": a.Broker.URL, "restURL": a.Broker.AdminURL,
		"jobsetEventsTopic": a.Topic("events"), "controlPlaneEventsTopic": a.Topic("control-plane"),
	}
	scheduler, lookout := connection(t, a.SchedulerDB), connection(t, a.lookoutDB)
	api := settings{"armadaUrl": a.server, "forceNoTls": true}
	pools := []settings{{"name": "default"}}
	for _, e := range a.Executors {
		if p := (settings{"name": pool(e)}); !slices.ContainsFunc(pools, func(q settings) bool { return q["name"] == p["name"] }) {
			pools = append(pools, p)
		}
	}
	scheduling := settings{"executorTimeout": a.ExecutorTimeout.String(), "executorUpdateFrequency": "1s", "pools": pools}
	maps.Copy(scheduling, a.Scheduling)
	schedulerFile := settings{
		"grpc": settings{"port": free[1]}, "http": settings{"port": free[5]}, "metrics": settings{"port": free[6]},
		"armadaApi": api, "postgres": scheduler, "pulsar": pulsar,
		"executorTimeout": a.ExecutorTimeout.String(), "queueRefreshPeriod": "1s",
		"scheduling": scheduling,
	}
	maps.Copy(schedulerFile, a.Scheduler)
	for name, file := range map[string]settings{
		"server": {
			"grpcPort": free[0], "httpPort": free[3], "metricsPort": free[4], "pulsar": pulsar, "queueCacheRefreshPeriod": "1s",
			"eventsApiRedis": settings{"addrs": []string{a.redis}},
			"postgres":       lookout, "queryapi": settings{"postgres": lookout},
			"schedulerApiConnection": settings{"armadaUrl": a.scheduler, "forceNoTls": true},
		},
		"scheduler":         schedulerFile,
		"scheduleringester": {"metrics": settings{"port": free[7]}, "postgres": scheduler, "pulsar": pulsar},
		"eventingester":     {"metricsPort": free[8], "redis": settings{"addrs": []string{a.redis}}, "pulsar": pulsar},
		"lookout":           {"postgres": lookout},
		"ctl":               {"currentContext": "main", "contexts": settings{"main": api, "ours": settings{"armadaUrl": a.API, "forceNoTls": true}}},
	} {
		text, err := json.MarshalIndent(file, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(a.config(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *Armada) config(name string) string { return filepath.Join(a.Dir, name+".yaml") }

// Topic is the full name of a topic.
func (a *Armada) Topic(name string) string { return "persistent://" + a.Namespace + "/" + name }

func local(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// connection says in Armada's words where a database is.
func connection(t testing.TB, database string) settings {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	host, user := u.Query().Get("host"), u.Query().Get("user")
	if host == "" {
		t.Fatal(fmt.Errorf("the database %s is not on a socket", database))
	}
	return settings{"connection": settings{
		"host": host, "port": 5432, "user": user, "password": "psw", "dbname": strings.TrimPrefix(u.Path, "/"), "sslmode": "disable",
	}}
}

func cutExecutor(name string) (string, bool) { return strings.CutPrefix(name, "executor-") }
