// Package redisstore keeps counts in Redis, Valkey or a Redis Cluster that
// others run. Any number of stores, in any number of processes, share one.
//
// A partition is a hash tag: all its keys are in one slot, and one script call
// carries the deltas, the tokens and the mark of a batch. Plain adds are applied
// by one call of one script. Whatever depends on more of the state is read by one
// call, decided here by the code that all stores share, and written by another
// call if nothing that was read has changed; if it has, it is decided again.
//
// The server decides what an acknowledgement survives, and every reply says
// it. Memory means that the server has it and keeps no log (appendonly no): a
// restart of the server loses it. Written means that it is in the server's log,
// handed to the operating system: it may be lost with the machine, or by a failover
// to a replica that did not have it yet. Synced means that as many replicas as
// Options.Replicas have it too, in their logs and the server's own if the servers
// can tell that, or, without any, that the server syncs its log before it answers
// (appendonly yes, appendfsync always). A writer's mark that is behind what this
// store has seen acknowledged, or a partition that is behind what this store has
// told its callers, is reported as store.ErrLost.
package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/store"
)

// Options are the settings of a store. The zero value is useful.
type Options struct {
	Limits store.Limits     // zero fields mean their defaults; see store.Limits.Share
	Now    func() time.Time // the clock; default the server's

	// Partitions is how many a new store is made of, default 64. It is kept in the
	// server: for one that is there, 0 takes what it has, and any other number than
	// that is refused.
	Partitions int

	// Prefix begins every key, default "quipu". Stores with different prefixes do
	// not know of each other.
	Prefix string

	// Replicas is how many replicas must have a write before it is acknowledged as
	// synced. If fewer do in time, the outcome is store.ErrUnknown.
	Replicas int

	// AcceptEviction takes a server that may drop keys when its memory is full.
	AcceptEviction bool

	// Logger is told when a server begins to drop keys, and when its settings promise
	// little; by default nobody is.
	Logger *slog.Logger

	// Existing is for who only reads: the store must be there. Opening makes
	// nothing.
	Existing bool

	wrap func(net.Conn) net.Conn // around each connection, if not nil
}

// A Store keeps counts in Redis. It is safe for concurrent use.
type Store struct {
	client     rueidis.Client
	options    Options
	hosts      []string     // that the URL names, with ports
	limits     store.Limits // as they are told
	share      store.Limits // of one partition
	partitions []partition
	offers     store.Durability // the strongest, when it was opened
	doubts     atomic.Uint64    // how often a server answered on a new connection
	verdict    atomic.Pointer[verdict]
	said       atomic.Uint32 // the durability that was logged last
	asking     sync.Mutex    // held by the call that asks for settings because of a doubt
	servers    servers
	recheck    chan struct{} // has one element while the settings are to be looked at soon
	stop       context.CancelFunc
	work       sync.WaitGroup // what is done in the background
	routes     []atomic.Int32 // of each partition: see Route
	acked      []marks        // of each partition
	told       []version      // of each partition
	raised     []raised       // of each partition
	id         string         // of the store in the server; "" if it has none
	losses     losses
	clocks     []*clock.Heard     // of each partition
	turns      [256]chan struct{} // see turn
	meters     meters

	calls  sync.WaitGroup // those under way
	mu     sync.Mutex     // guards closed, and that no call begins after it is set
	closed bool
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Auditor    = (*Store)(nil)
	_ store.Meter      = (*Store)(nil)
	_ store.Prober     = (*Store)(nil)
	_ store.Clock      = (*Store)(nil)
	_ store.Sizer      = (*Store)(nil)
	_ store.Namespacer = (*Store)(nil)
)

// Open connects to the server or cluster at url,
// redis://[user:password@]host:port[,host:port…][/db], or rediss:// for TLS, and
// makes the store there if there is none, unless it is told not to. A rediss:// URL may
// end in ?sslrootcert=FILE, for issuers other than those of the system, and
// sslcert=FILE&sslkey=FILE, the client's certificate.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if o.Prefix == "" {
		o.Prefix = "quipu"
	}
	switch {
	case strings.ContainsAny(o.Prefix, "{}"):
		return nil, store.Errorf(store.KindInvalid, "prefix %q has a brace: they are for hash tags", o.Prefix)
	case o.Partitions < 0 || o.Partitions > partitionsMax:
		return nil, store.Errorf(store.KindInvalid, "%d partitions: want 1 to %d", o.Partitions, partitionsMax)
	case o.Replicas < 0:
		return nil, store.Errorf(store.KindInvalid, "%d replicas", o.Replicas)
	}
	option, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Store{options: o, limits: o.Limits.WithDefaults(), recheck: make(chan struct{}, 1)}
	s.verdict.Store(&verdict{})
	for i := range s.turns {
		s.turns[i] = make(chan struct{}, 1)
	}
	option.DialCtxFn = s.dial
	s.hosts = option.InitAddress
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, store.Errorf(store.KindUnavailable, "connect to redis at %s: %w", strings.Join(option.InitAddress, ","), err)
	}
	s.client = client
	if err := s.open(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return s, nil
}

// open finds or makes the store in the server.
func (s *Store) open(ctx context.Context) error {
	set, err := s.check(ctx, dialPatience)
	if err != nil {
		return err
	}
	if set.evicts != "" && !s.options.AcceptEviction {
		return store.Errorf(store.KindInvalid,
			"the server's maxmemory-policy is %s, so it may drop counters: set maxmemory-policy to noeviction in Redis, "+
				"or accept the loss with --redis-allow-eviction (Options.AcceptEviction)", set.evicts)
	}
	n, err := s.found(ctx)
	if err != nil {
		return err
	}
	s.partitions = partitions(s.options.Prefix, n)
	if !s.options.Existing {
		if err := s.migrate(ctx); err != nil {
			return err
		}
	}
	s.acked, s.told, s.clocks = make([]marks, n), make([]version, n), make([]*clock.Heard, n)
	s.routes, s.raised = make([]atomic.Int32, n), make([]raised, n)
	s.findRoutes(ctx)
	for i := range s.clocks {
		s.clocks[i] = clock.NewHeard(s.options.Now != nil)
	}
	s.share = s.limits.Share(n)
	s.offers = max(set.keeps, store.Memory)
	if s.options.Replicas > 0 {
		s.offers = store.Synced
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.work.Go(func() { s.watch(background) })
	s.work.Go(func() { s.sweepAlways(background) })
	return nil
}

// found returns how many partitions the store has, after making it if need be and may be,
// and takes the window of tokens that it has.
func (s *Store) found(ctx context.Context) (int, error) {
	key := s.options.Prefix + ":store"
	b := s.client.B()
	n := s.options.Partitions
	if n == 0 {
		n = 64
	}
	var all []rueidis.Completed
	if !s.options.Existing {
		all = append(all,
			b.Hsetnx().Key(key).Field("layout").Value(strconv.Itoa(layoutVersion)).Build(),
			b.Hsetnx().Key(key).Field("partitions").Value(strconv.Itoa(n)).Build(),
			b.Hsetnx().Key(key).Field("window").Value(strconv.FormatInt(s.limits.TokenWindow.Milliseconds(), 10)).Build(),
			b.Hsetnx().Key(key).Field("id").Value(rand.Text()).Build())
	}
	all = append(all, b.Hmget().Key(key).Field("layout", "partitions", "window", "id").Build())
	rs := s.client.DoMulti(ctx, all...)
	for _, r := range rs {
		if err := r.Error(); err != nil {
			return 0, failed(ctx, err)
		}
	}
	has, err := rs[len(rs)-1].AsStrSlice()
	if err != nil {
		return 0, store.Errorf(store.KindCorrupt, "%s: %w", key, err)
	}
	if has[0] == "" && s.options.Existing {
		return 0, store.Errorf(store.KindUnavailable,
			"redis at %s has no %s: if it is the right one, start a server that writes; one that only reads makes no store",
			strings.Join(slices.Sorted(maps.Keys(s.client.Nodes())), ","), key)
	}
	if is, err := strconv.Atoi(has[0]); err == nil && is > layoutVersion {
		return 0, store.Newer(key, is, layoutVersion)
	}
	if err := s.raise(ctx, key, has[0]); err != nil {
		return 0, err
	}
	n, err = strconv.Atoi(has[1])
	if err != nil || n < 1 || n > partitionsMax {
		return 0, store.Errorf(store.KindCorrupt, "%s has %q partitions", key, has[1])
	}
	if s.options.Partitions != 0 && s.options.Partitions != n {
		return 0, store.Errorf(store.KindInvalid, "the store has %d partitions, asked for %d: their number is fixed when it is made",
			n, s.options.Partitions)
	}
	ms, err := strconv.ParseInt(has[2], 10, 64)
	if err != nil || ms < 1 {
		return 0, store.Errorf(store.KindCorrupt, "%s has a window of %q ms", key, has[2])
	}
	s.limits.TokenWindow, s.id = time.Duration(ms)*time.Millisecond, has[3]
	return n, store.CheckWindow(s.limits.TokenWindow, s.options.Limits.TokenWindow)
}

// dial connects to a server, whose settings may be others than those of the one
// before: they are asked for once it answers. If nobody listens, nothing can be sent,
// and to try again at once is no use.
func (s *Store) dial(ctx context.Context, addr string, d *net.Dialer, secure *tls.Config) (conn net.Conn, err error) {
	if secure != nil {
		conn, err = (&tls.Dialer{NetDialer: d, Config: s.secureTo(addr, secure)}).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = d.DialContext(ctx, "tcp", addr)
	}
	if err != nil && ctx.Err() == nil {
		err = permanent{err}
	}
	if err != nil {
		return nil, err
	}
	if s.options.wrap != nil {
		conn = s.options.wrap(conn)
	}
	return &newConn{conn, func() { s.heard(addr) }}, nil
}

// Traits says what kind of store this is.
func (s *Store) Traits() store.Traits {
	return store.Traits{Name: "redis", Partitions: len(s.partitions), Durability: s.offers, Limits: s.limits, Layouts: true, Shared: true}
}

// NowMS returns the time of a cell's partition, as it was told last, with what has
// passed since.
func (s *Store) NowMS(c store.Cell) int64 {
	return s.clocks[store.PartitionOf(c, len(s.partitions))].NowMS()
}

// Close ends the store after the calls under way. It does not wait long for those that
// a server leaves unanswered. What the store holds stays in the server.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	s.stop()
	ended := make(chan struct{})
	go func() {
		s.calls.Wait()
		s.work.Wait()
		close(ended)
	}()
	enough := time.NewTimer(closePatience)
	defer enough.Stop()
	select {
	case <-ended:
	case <-enough.C:
	}
	s.client.Close()
	return nil
}

// enter begins a call, which ends with s.calls.Done. Or it says why it can't be
// served.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// now is the time that scripts are given: none, so that they take the server's,
// unless the store has a clock of its own.
func (s *Store) now() string {
	if s.options.Now == nil {
		return ""
	}
	return strconv.FormatInt(s.options.Now().UnixMilli(), 10)
}

// parseURL returns how to reach the servers that a URL names. Its errors do not
// quote it: it may have a password.
func parseURL(s string) (rueidis.ClientOption, error) {
	bad := func(why string) (rueidis.ClientOption, error) {
		return rueidis.ClientOption{}, store.Errorf(store.KindInvalid,
			"redis URL: %s: want redis://[user:password@]host:port[,host:port…][/db], or rediss:// for TLS", why)
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || (scheme != "redis" && scheme != "rediss") {
		return bad("unknown scheme")
	}
	user, hosts := "", rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, hosts = rest[:at+1], rest[at+1:]
	}
	hosts, query, asks := strings.Cut(hosts, "?")
	if asks && scheme != "rediss" || strings.Contains(hosts+query, "#") {
		return bad("no options are taken, but certificates with rediss://")
	}
	hosts, path, slash := strings.Cut(hosts, "/")
	if slash && path != "" {
		path = "/" + path
	}
	var o rueidis.ClientOption
	for i, host := range strings.Split(hosts, ",") {
		if host == "" {
			return bad("no host")
		}
		one, err := rueidis.ParseURL(scheme + "://" + user + host + path)
		if err != nil {
			return bad("host, user or database")
		}
		if i == 0 {
			o = one
			continue
		}
		o.InitAddress = append(o.InitAddress, one.InitAddress...)
	}
	if o.TLSConfig != nil {
		if err := secure(o.TLSConfig, query); err != nil {
			return bad(err.Error())
		}
	}
	o.ClientName = "quipu"
	o.DisableCache = true
	o.DisableRetry = true // only we know what may be sent twice
	o.Dialer.Timeout = dialPatience
	o.ConnWriteTimeout = connPatience
	o.ClusterOption.MaxMovedRedirections = 8
	return o, nil
}
