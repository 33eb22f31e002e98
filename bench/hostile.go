package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/quipudb/quipu/internal/hostile"
)

const hostileAbout = "What a server holds, and how long a well-behaved client waits, while others attack it. The client increments a counter over RESP " +
	"every 5 ms. Each attack meets a new server with the embedded store, an API key and `--memory-total 256MiB`. Memory is what the " +
	"process has resident: before the attack, at most during it, and some seconds after it. The attackers share the machine with the server and the client, " +
	"but run at the lowest priority, since they would have a machine of their own. The row `" + busyName + "` has programs of that priority that only compute: what is waited there is the machine's part in the other waits."

// busyName is the row without an attack.
const busyName = "busy"

// hostileTotal is the memory limit of a server under attack: a small one, so that
// what is not counted shows.
const hostileTotal = 256 * mib

// An attack is judged by these.
const (
	beforeMiB = "MiB before"
	peakMiB   = "MiB at most"
	afterMiB  = "MiB after"
	waitP99   = "ms that the client waits, p99"
	waitMost  = "ms that the client waits, at most"
)

func underAttack(s *session) error {
	attacks := allAttacks()
	var names []string
	for _, a := range attacks {
		names = append(names, a.Name)
	}
	chosen, err := pickNames("-cases", s.choice.cases, names)
	if err != nil {
		return err
	}
	attacks = slices.DeleteFunc(attacks, func(a hostile.Attack) bool { return !slices.Contains(chosen, a.Name) })
	var sides []func() error
	for _, a := range attacks {
		sides = append(sides, func() error {
			return s.inTemp(func(dir string) error {
				_, _ = fmt.Fprintf(s.out, "%s: %s\n", s.Figure, a.Name)
				return s.besiege(dir, a)
			})
		})
	}
	if err := s.alternate(sides...); err != nil {
		return err
	}
	t := table{Title: "Attacks"}
	t.head("attack", beforeMiB, peakMiB, afterMiB, waitP99, waitMost, "what it does")
	var worstPeak, worstWait float64
	for _, a := range attacks {
		row := []string{a.Name}
		for _, metric := range t.columns[1:6] {
			row = append(row, number(s.median(a.Name, metric)))
		}
		t.rows = append(t.rows, append(row, a.About))
		worstPeak = max(worstPeak, s.median(a.Name, peakMiB))
		worstWait = max(worstWait, s.median(a.Name, waitP99))
	}
	s.Tables = append(s.Tables, t)
	s.atMost(waitP99+", under the worst attack", worstWait, 50)
	s.atMost(peakMiB+", under the worst attack", worstPeak, hostileTotal/mib)
	for _, target := range s.Targets {
		s.note("%s: %s, want %s.", target.What, number(target.Measured), number(target.Want))
	}
	return nil
}

// besiege attacks a new server, and records what came of it.
func (s *session) besiege(dir string, a hostile.Attack) (err error) {
	const key, free = "hostile-figure", "127.0.0.1:0"
	server, err := s.serveQuipu(dir, "--http", free, "--resp", free, "--rpc", free, "--api-key", key, "--memory-total", strconv.Itoa(hostileTotal), "--log-level", "error")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	resident := func(metric, name string) {
		bytes, e := memoryOf(strconv.Itoa(server.pid()), name)
		err = errors.Join(err, e)
		s.record(a.Name, metric, bytes/mib)
	}
	resident(beforeMiB, "VmRSS")
	lasting := pick(s, 5*time.Second, 500*time.Millisecond)
	target := hostile.Target{HTTP: server.doors["http"], RESP: server.doors["resp"], RPC: server.doors["rpc"], Key: key}
	a.Run = func(_ context.Context, t hostile.Target) error {
		_, err := runChild[struct{}](s.ctx, "attack", assault{a.Name, t, lasting}, ended)
		return err
	}
	waited, e := hostile.Besiege(s.ctx, a, target, lasting)
	if e != nil {
		return errors.Join(err, e)
	}
	if err := wait(s.ctx, pick(s, 3*time.Second, 0)); err != nil {
		return err
	}
	resident(peakMiB, "VmHWM")
	resident(afterMiB, "VmRSS")
	s.record(a.Name, waitP99, float64(waited.Quantile(0.99).Microseconds())/1000)
	s.record(a.Name, waitMost, float64(waited.Quantile(1).Microseconds())/1000)
	return err
}

// allAttacks returns the attacks, after none.
func allAttacks() []hostile.Attack {
	busy := hostile.Attack{Name: busyName, About: "nothing: programs compute beside the server", Run: compute}
	return slices.Concat([]hostile.Attack{busy}, hostile.RESP(), hostile.RPC(), hostile.REST())
}

// compute keeps every processor busy until ctx ends.
func compute(ctx context.Context, _ hostile.Target) error {
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for ctx.Err() == nil {
				rand.Uint64()
			}
		})
	}
	wg.Wait()
	return nil
}

// An assault is the task of a child that attacks a server.
type assault struct {
	Name    string
	Target  hostile.Target
	Lasting time.Duration
}

// attack attacks from a process of the lowest priority.
func attack(a assault) (struct{}, error) {
	const lowest = 19
	// Of a group all threads are meant, of a process only the one that asks.
	if err := errors.Join(syscall.Setpgid(0, 0), syscall.Setpriority(syscall.PRIO_PGRP, 0, lowest)); err != nil {
		return struct{}{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.Lasting)
	defer cancel()
	all := allAttacks()
	i := slices.IndexFunc(all, func(one hostile.Attack) bool { return one.Name == a.Name })
	if i < 0 {
		return struct{}{}, fmt.Errorf("no attack %q", a.Name)
	}
	return struct{}{}, all[i].Run(ctx, a.Target)
}
