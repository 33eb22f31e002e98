package resp

import (
	"context"
	"slices"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/store"
)

// Commands on text that follow each other in a pipeline are one step: each would be a read and a
// durable write of its own otherwise.

const (
	// textsMax is how many keys the commands of one step may name. With as many texts of the
	// greatest length, their replies are within the limit of one.
	textsMax = 128
	// textsBytesMax is how long their arguments may be.
	textsBytesMax = 1 << 20
)

// joinable reports whether a command on text can be executed together with others.
func (s *session) joinable(c *command, args [][]byte) bool {
	if _, has := keyspace.Has(c.name); !has || c.name == "COPY" || // to another database, perhaps
		c.name == "PFCOUNT" || // may be known without a snapshot
		s.multi || s.skip || s.follow.on {
		return false
	}
	p := s.db.Port()
	return !slices.ContainsFunc(c.keys.positions(args), func(i int) bool { return p.Defined(textOf(args[i])) })
}

// laterTexts makes a command on text the session's job, which takes others that follow.
func (s *session) laterTexts(c *command, args [][]byte) {
	s.slots, s.kept = s.jobs, 0
	s.addText(c, args)
	s.job = s.doTexts
}

func (s *session) addText(c *command, args [][]byte) {
	kept := copyArgs(args)
	s.joint = append(s.joint, queued{c, kept})
	s.kept += argsBytes(kept)
}

// join adds a command to the session's job, if it can be executed together with those that are there.
func (w *worker) join(s *session, args [][]byte) verdict {
	c, err := w.find(s, args)
	if err != nil || !s.joinable(c, args) || s.kept > textsBytesMax || s.textKeys()+len(args) > textsMax {
		return s.again()
	}
	s.addText(c, args)
	s.answer(c, 1)
	s.calls++
	return executed
}

// textKeys returns about how many keys the commands of the job name.
func (s *session) textKeys() (n int) {
	for _, q := range s.joint {
		n += max(len(q.args)-1, 1)
	}
	return n
}

// doTexts executes the commands of the job. If they can't be executed together, each is by itself.
func (s *session) doTexts(ctx context.Context) {
	texts := s.joint
	s.joint = nil
	s.mute(func() {
		start := len(s.out)
		replies, err := s.textsAtOnce(ctx, texts)
		for i, q := range texts {
			s.counted(q.command, nil, func() {
				s.call(func(s *session, args [][]byte) error {
					switch {
					case store.KindOf(err) == store.KindUnknown:
						return err
					case err != nil:
						return textCommand(ctx, s, args)
					}
					s.answerText(&replies[i])
					return nil
				}, q.args)
			})
		}
		if s.fault != nil {
			s.overflow(start) // an error would say that nothing has changed
		}
	})
	s.noteSlow(texts[0].args)
}

func (s *session) textsAtOnce(ctx context.Context, texts []queued) ([]keyspace.Reply, error) {
	commands := make([][][]byte, len(texts))
	for i, q := range texts {
		commands[i] = q.args
	}
	keys, err := keysOf(commands...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	replies := make([]keyspace.Reply, len(texts))
	err = s.db.Port().Text(ctx, keys, nil, func(space *keyspace.Space) error {
		for i, args := range commands {
			replies[i] = space.Do(args)
		}
		return nil
	})
	return replies, err
}
