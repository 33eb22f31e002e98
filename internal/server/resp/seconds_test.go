package resp_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// Every command that has a reply is in the histogram, whichever way it goes, and
// none is in it twice.
func TestCommandSeconds(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		f := func(commands int, sent string, more ...string) {
			t.Helper()
			db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
			o.Metrics = server.NewMetrics(db.Port())
			d := openOver(t, db, o)
			c := dial(t, d.addr)
			for _, sent := range append([]string{sent}, more...) {
				c.send(sent)
				for range strings.Count(sent, "*") {
					c.reply()
				}
			}
			if err := d.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			o.Metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			value := func(name string) float64 {
				t.Helper()
				m := regexp.MustCompile(`(?m)^quipu_resp_command_duration_seconds_` + name + ` (.*)$`).FindStringSubmatch(w.Body.String())
				if m == nil {
					t.Fatalf("no %s in\n%s", name, w.Body)
				}
				v, err := strconv.ParseFloat(m[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			if got := value("count"); got != float64(commands) {
				t.Errorf("%q: %v commands, want %d", sent, got, commands)
			}
			if sum, all := value("sum"), value(`bucket\{le="\+Inf"\}`); sum <= 0 || all != float64(commands) {
				t.Errorf("%q: sum %v, %v in all buckets", sent, sum, all)
			}
		}
		incr, get, ping := array("INCR", "a"), array("GET", "a"), array("PING")
		guarded := array("Q.ADD", "a", "1", "ID", "t")
		f(1, ping)
		f(1, incr)
		f(1, get)
		f(1, guarded)
		f(1, array("NOSUCH"))
		f(1, array("KEYS", "x")) // goes through all keys
		f(3, incr, get, ping)
		f(100, strings.Repeat(incr, 100))
		f(100, strings.Repeat(get, 100))
		f(7, incr+incr+get+incr+ping+guarded+get)
		f(4, array("MULTI")+incr+get+array("EXEC"))
		f(5, array("WATCH", "a")+array("MULTI")+incr+get+array("EXEC"))
	})
}
