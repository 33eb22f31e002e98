package resp

import (
	"slices"

	"github.com/quipudb/quipu/internal/keyspace"
)

// The commands on channels: see pubsub.go.

// invalidateChannel is where clients with RESP2 are told what to forget: Redis's name. Nobody publishes to it.
const invalidateChannel = "__redis__:invalidate"

const (
	errChannels     = wireError("ERR too many channels: a connection listens to at most 10000")
	errPatterns     = wireError("ERR too many patterns: a connection listens to at most 100, and all of a user to at most 1000")
	errChannelLong  = wireError("ERR the name of a channel is too long: at most 1024 bytes")
	errPatternLong  = wireError("ERR pattern is too long: a connection listens to patterns of at most 256 bytes")
	errPatternBytes = wireError("ERR too many patterns: those of a user have at most 32768 bytes together")
	errInvalidate   = wireError("ERR nobody publishes to " + invalidateChannel)
)

func pubsubCommands() []*command {
	const category = "pubsub"
	return grouped(category, []*command{
		{name: "SUBSCRIBE", arity: -2, flags: flagLone, category: category, local: subscribe, since: "2.0.0", about: "Listens to channels."},
		{name: "UNSUBSCRIBE", arity: -1, flags: flagLone, category: category, local: unsubscribe, since: "2.0.0", about: "Listens to channels no more."},
		{name: "PSUBSCRIBE", arity: -2, flags: flagLone, category: category, local: psubscribe, since: "2.0.0", about: "Listens to all channels that match patterns."},
		{name: "PUNSUBSCRIBE", arity: -1, flags: flagLone, category: category, local: punsubscribe, since: "2.0.0", about: "Listens to patterns no more."},
		{name: "PUBLISH", arity: 3, flags: flagFast | flagText, category: category, local: publish, since: "2.0.0", about: "Tells those who listen to a channel."},
		{name: "PUBSUB", arity: -2, since: "2.8.0", about: "Commands about channels.", subs: map[string]*command{
			"CHANNELS": {name: "PUBSUB|CHANNELS", syntax: "CHANNELS [<pattern>]", arity: -2, category: category, local: pubsubChannels, since: "2.8.0", about: "Returns the channels that somebody listens to."},
			"NUMPAT":   {name: "PUBSUB|NUMPAT", syntax: "NUMPAT", arity: 2, category: category, local: pubsubNumPat, since: "2.8.0", about: "Returns how many patterns somebody listens to."},
			"NUMSUB":   {name: "PUBSUB|NUMSUB", syntax: "NUMSUB [<channel> ...]", arity: -2, category: category, local: pubsubNumSub, since: "2.8.0", about: "Returns how many connections listen to channels."},
		}},
	})
}

// checkChannels returns why some names can't be those of channels.
func checkChannels(names [][]byte) error {
	for _, name := range names {
		if len(name) > patternBytesMax {
			return errChannelLong
		}
	}
	return nil
}

func subscribe(s *session, args [][]byte) error {
	if err := checkChannels(args[1:]); err != nil {
		return err
	}
	for _, name := range args[1:] {
		if string(name) == invalidateChannel {
			s.setSubscribed(true)
		} else if err := s.d.hub.subscribe(s, string(name)); err != nil {
			s.fail(errorText(err)) // Those before it were told.
			return nil
		}
		s.subscription("subscribe", string(name))
	}
	return nil
}

func psubscribe(s *session, args [][]byte) error {
	for _, pattern := range args[1:] {
		if len(pattern) > patternListenedBytesMax {
			return errPatternLong
		}
	}
	for _, pattern := range args[1:] {
		if err := s.d.hub.psubscribe(s, string(pattern)); err != nil {
			s.fail(errorText(err))
			return nil
		}
		s.subscription("psubscribe", string(pattern))
	}
	return nil
}

func unsubscribe(s *session, args [][]byte) error {
	names := textsOf(args[1:])
	if len(args) == 1 {
		if names = s.d.hub.names(s, false); s.subscribed {
			names = append(names, invalidateChannel)
		}
	}
	for _, name := range names {
		if name == invalidateChannel {
			s.setSubscribed(false)
		}
		s.d.hub.unsubscribe(s, name)
		s.subscription("unsubscribe", name)
	}
	if len(names) == 0 {
		s.noSubscription("unsubscribe")
	}
	return nil
}

func punsubscribe(s *session, args [][]byte) error {
	patterns := textsOf(args[1:])
	if len(args) == 1 {
		patterns = s.d.hub.names(s, true)
	}
	for _, pattern := range patterns {
		s.d.hub.punsubscribe(s, pattern)
		s.subscription("punsubscribe", pattern)
	}
	if len(patterns) == 0 {
		s.noSubscription("punsubscribe")
	}
	return nil
}

func textsOf(args [][]byte) (texts []string) {
	for _, a := range args {
		texts = append(texts, string(a))
	}
	return texts
}

// setSubscribed has CLIENT LIST say too that the session listens to invalidations.
func (s *session) setSubscribed(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribed = on
}

// subscription tells of a channel, and how many the session has.
func (s *session) subscription(what, channel string) {
	s.push(3)
	s.text(what)
	s.text(channel)
	s.integer(s.subscriptions())
}

// noSubscription tells that there was none to be ended.
func (s *session) noSubscription(what string) {
	s.push(3)
	s.text(what)
	s.null()
	s.integer(s.subscriptions())
}

// publish is PUBLISH, unless a transaction or a script executes it.
func publish(s *session, args [][]byte) error {
	if err := checkPublish(args); err != nil {
		return err
	}
	s.integer(s.d.hub.publish(s.user, string(args[1]), string(args[2])))
	return nil
}

func checkPublish(args [][]byte) error {
	if string(args[1]) == invalidateChannel {
		return errInvalidate
	}
	return checkChannels(args[1:2])
}

// publishing has what is published on a snapshot be told how many listen.
func (s *session) publishing(space *keyspace.Space) {
	space.Receivers = func(name string) (int64, error) {
		if err := checkPublish([][]byte{nil, []byte(name)}); err != nil {
			return 0, err
		}
		return s.d.hub.receivers(s.user, name), nil
	}
}

// tellAll tells what was published on a snapshot, once what has changed there is so.
func (s *session) tellAll(published []keyspace.Message) {
	for _, m := range published {
		s.d.hub.publish(s.user, m.Channel, m.Text)
	}
}

func pubsubChannels(s *session, args [][]byte) error {
	if len(args) > 3 {
		return wireError("ERR unknown subcommand or wrong number of arguments for '" + clip(args[1], 128) + "'. Try PUBSUB HELP.")
	}
	names, _ := s.d.hub.listened(s.user)
	if len(args) == 3 {
		if len(args[2]) > patternBytesMax {
			return errPattern
		}
		var one subject
		pattern, stepsMax := string(args[2]), channelStepsMax+channelStepsEach*len(names)
		names = slices.DeleteFunc(names, func(name string) bool {
			if one.steps > stepsMax {
				return true
			}
			one.set(name)
			return !one.matches(pattern)
		})
		if one.steps > stepsMax {
			return errPatternSteps
		}
	}
	slices.Sort(names)
	s.texts(names)
	return nil
}

func pubsubNumPat(s *session, _ [][]byte) error {
	_, patterns := s.d.hub.listened(s.user)
	s.integer(int64(patterns))
	return nil
}

func pubsubNumSub(s *session, args [][]byte) error {
	s.array(2 * (len(args) - 2))
	for _, name := range args[2:] {
		s.bulk(name)
		s.integer(s.d.hub.subscribers(s.user, string(name)))
	}
	return nil
}

// whileSubscribed are the commands for a client with RESP2 that waits for messages: it takes
// what it reads for one.
var whileSubscribed = []string{"SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "PING", "QUIT", "RESET"}

// checkSubscribed returns why a command can't be executed now.
func (s *session) checkSubscribed(c *command) error {
	if !s.listens() || s.resp3 || slices.Contains(whileSubscribed, c.name) {
		return nil
	}
	return wireError("ERR Can't execute '" + c.lower + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}
