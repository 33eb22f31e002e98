package crash

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	counters    = 8   // who add to sketches
	counterMost = 150 // items of each, so that all are counted exactly
)

// A booth is a server whose keys hold sketches.
type booth struct {
	*host
	over     atomic.Bool
	mu       sync.Mutex
	problems []error
}

func (b *booth) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Errorf(format, args...))
}

// sketched has callers add items to sketches of each kind, small and in pieces, while the server is killed. Afterwards
// everything that was acknowledged is there, and nothing that was not asked for.
func sketched(t *testing.T, binary string, rng *rand.Rand) {
	b := &booth{host: newHost(t, binary, "--resp")}
	for _, command := range []string{"CMS.INITBYDIM counts 300 5", "CMS.INITBYDIM pieces 4000 5", "BF.RESERVE large 0.001 200000"} {
		if got, err := b.ask(command); err != nil || got != "+OK" {
			t.Fatalf("%s: %q, %v", command, got, err)
		}
	}
	var all sync.WaitGroup
	told, asked := make([]map[string]bool, counters), make([]map[string]int, counters)
	for i := range counters {
		told[i], asked[i] = map[string]bool{}, map[string]int{}
		all.Go(func() { b.count(i, told[i], asked[i]) })
	}
	for range *cycles {
		pause(time.Duration(100+rng.IntN(500))*time.Millisecond, b.process.Exited)
		if err := b.process.Died(); err != nil {
			t.Fatal(err)
		}
		b.process.Kill()
		b.start()
	}
	b.over.Store(true)
	all.Wait()
	items, sure := 0, 0
	for i := range counters {
		items += len(asked[i])
		for item := range told[i] {
			sure++
			for _, filter := range []string{"BF.EXISTS small ", "BF.EXISTS large "} {
				if got, err := b.ask(filter + item); got != ":1" {
					b.problem("%s%s was acknowledged, and is %q, %v", filter, item, got, err)
				}
			}
		}
	}
	if n, err := b.number("PFCOUNT uniques"); n < sure || n > items {
		b.problem("%d uniques, %v; %d were acknowledged of %d", n, err, sure, items)
	}
	for _, sketch := range []string{"counts", "pieces"} {
		for i := range counters {
			for item, times := range asked[i] {
				least := 0
				if told[i][item] {
					least = 1
				}
				got, err := b.ask("CMS.QUERY " + sketch + " " + item)
				n, bad := strconv.Atoi(strings.TrimPrefix(got, ":"))
				if sum := items * 3 / 100; bad != nil || n < least || sketch == "pieces" && n > times+sum {
					b.problem("%s has %q of %s, %v; want %d to %d", sketch, got, item, err, least, times)
				}
			}
		}
	}
	if err := b.process.Drain(); err != nil {
		t.Fatal(err)
	}
	command(t, binary, "verify", "--data", b.dir)
	t.Logf("%d kills: %d items, of which %d were acknowledged", *cycles, items, sure)
	if err := errors.Join(b.problems[:min(len(b.problems), 10)]...); err != nil {
		t.Fatal(err)
	}
}

// count adds items one after the other to all sketches, and writes down which were acknowledged by all, and how
// often each was sent.
func (b *booth) count(caller int, told map[string]bool, asked map[string]int) {
	for i := 0; !b.over.Load() && i < counterMost; i++ {
		item := fmt.Sprintf("item-%d-%d", caller, i)
		asked[item] = 1
		done := true
		for _, command := range []string{"PFADD uniques %s", "BF.ADD small %s", "BF.ADD large %s", "CMS.INCRBY counts %s 1", "CMS.INCRBY pieces %s 1"} {
			got, err := b.ask(fmt.Sprintf(command, item))
			if err == nil && got == "" || strings.HasPrefix(got, "-") {
				b.problem("%s %s: %q", command, item, got)
			}
			if err != nil { // It is down.
				done = false
				pause(20*time.Millisecond, nil)
			}
		}
		if done {
			told[item] = true
		}
	}
}

// ask sends a command on a connection of its own, and returns its reply, or of an array the first.
func (b *booth) ask(command string) (string, error) {
	conn, err := net.DialTimeout("tcp", b.addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err == nil && line[0] == '*' {
		line, err = r.ReadString('\n')
	}
	return strings.TrimSpace(line), err
}

func (b *booth) number(command string) (int, error) {
	got, err := b.ask(command)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimPrefix(got, ":"))
}
