package advise

import (
	"fmt"
	"strconv"
	"strings"
)

const columns = 100

// YAML returns the policy as a configuration file has it, with the rest of the
// advice as comments.
func (a *Advice) YAML() string {
	var w writer
	w.comment("", "%s", a.Needs.sentence(a.Store))
	w.line("policies:")
	for _, s := range a.Policy.Settings() {
		if !s.Given {
			continue
		}
		indent, dash := "    ", "    "
		if s.Name == "pattern" {
			indent, dash = "  ", "  - "
		}
		if why := a.Reasons[s.Name]; why != "" {
			w.comment(indent, "%s", why)
		}
		value := fmt.Sprint(s.Value)
		if text, ok := s.Value.(string); ok {
			value = strconv.Quote(text)
		}
		w.line(dash + s.Name + ": " + value)
	}
	w.heading("Expected cost")
	for _, line := range a.Cost.lines(a) {
		w.item("%s", line)
	}
	w.list("Besides", a.Notes)
	if len(a.Rejected) > 0 {
		w.heading("Considered and rejected")
		for _, r := range a.Rejected {
			w.item("%s: %s", r.What, r.Why)
		}
	}
	w.list("Not built yet", a.NotBuilt)
	w.heading("")
	w.comment("", "Figures are medians of one machine with 2 cores, which also ran the clients and the stores.")
	return w.String()
}

// sentence says what was asked for.
func (n *Needs) sentence(store Engine) string {
	s := fmt.Sprintf("For a counter with %s and %s a second, %s", Count(n.Writes, "write"), Count(n.Reads, "read"), n.Accuracy)
	if n.Accuracy != Exact {
		s += fmt.Sprintf(" and up to %s old", n.Freshness)
	}
	if n.Bounded {
		s += ", with a floor or a ceiling"
	}
	if n.Unique {
		s += ", of different things"
	}
	s += fmt.Sprintf("; store %s, servers: %d", store, n.Nodes)
	if n.Regions > 1 {
		s += fmt.Sprintf(", regions: %d", n.Regions)
	}
	return s
}

// lines says the cost.
func (c *Cost) lines(a *Advice) []string {
	cells := "one cell"
	if c.Cells > 1 {
		cells = fmt.Sprintf("%d cells: home and %s", c.Cells, Count(float64(c.Cells-1), "shard"))
	}
	lines := []string{cells}
	if a.Store == Embedded {
		lines = append(lines,
			"store calls: none that leave the process",
			fmt.Sprintf("memory: %s bytes a counter (bench/results/%s.md)", Number(c.Bytes), embeddedBytes.Result))
	} else {
		calls := postgresCalls
		if a.Store == Redis {
			calls = redisCalls
		}
		lines = append(lines,
			fmt.Sprintf("store calls for writes: from %s a second, combined as where it was measured, %s for 1,000, to %s if no two come together",
				Number(c.WriteCallsLeast), calls, Number(c.WriteCallsMost)),
			fmt.Sprintf("store calls for reads: %s a second", Number(c.ReadCalls)),
			"bytes in the store: not measured")
	}
	return append(lines, c.servers(a))
}

// servers says how many of them the writes and reads take, and whether there are so
// many.
func (c *Cost) servers(a *Advice) string {
	resp, of := a.serverRESP()
	each, least := resp.String()+" writes", ""
	if of > 1 {
		each = fmt.Sprintf("half of the %s writes that two took", resp)
	}
	measured := "increments"
	if a.Store != Embedded {
		measured = "increments with an embedded store"
	}
	if a.asked() && a.Needs.Reads > 0 {
		least = " if they came from memory: they ask the store, which was not measured and takes more"
	}
	return fmt.Sprintf("servers: %d over REST at %s calls a second each, measured of %s; %d over RESP in pipelines of 16 at %s, or %s reads%s; %d %s",
		c.ServersREST, embeddedREST, measured, c.ServersRESP, each, a.reads(), least, a.Needs.Nodes, c.fit(a))
}

// fit says whether the servers that there are will do, and what would help.
func (c *Cost) fit(a *Advice) string {
	n := a.Needs
	switch {
	case n.Nodes >= c.ServersREST:
		return "will do"
	case n.Nodes >= c.ServersRESP:
		return "will do over RESP, not over REST"
	}
	resp, of := a.serverRESP()
	half := float64(n.Nodes) / 2 // of writes and reads, one is above it
	var help []string
	more := "add servers"
	if a.Store == Embedded {
		more = "share a store among servers"
	}
	if n.Writes*of/resp.Value > half && !n.Bounded {
		help = append(help, "combine writes in the client (docs/client.md)")
	}
	if n.Reads/a.reads().Value > half {
		if a.Store == Embedded && n.Reads <= embeddedGets.Value {
			help = append(help, fmt.Sprintf("read in pipelines of 256, which took %s", embeddedGets))
		}
		switch older := n.older(); {
		case older == "":
		case a.asked():
			help = append(help, older)
		case a.Store == Embedded && n.Accuracy == Exact:
			more += " and " + older
		}
	}
	if help != nil {
		more = strings.Join(help, ", ") + ", or " + more
	}
	return "won't do: " + more
}

// older says how a total could serve the reads; it is empty if none can.
func (n *Needs) older() string {
	switch {
	case n.Bounded:
		return ""
	case n.Accuracy == Exact:
		return "let reads be old (--accuracy bounded)"
	default:
		return "let reads be older (--freshness)"
	}
}

// A writer writes YAML with comments.
type writer struct{ strings.Builder }

func (w *writer) line(s string) { w.WriteString(s + "\n") }

// comment writes a comment, in as many lines as it takes.
func (w *writer) comment(indent, format string, args ...any) {
	w.wrap(indent+"# ", indent+"# ", fmt.Sprintf(format, args...))
}

func (w *writer) heading(text string) {
	w.line("#")
	if text != "" {
		w.line("# " + text + ":")
	}
}

func (w *writer) item(format string, args ...any) {
	w.wrap("#   - ", "#     ", fmt.Sprintf(format, args...))
}

func (w *writer) list(heading string, items []string) {
	if len(items) == 0 {
		return
	}
	w.heading(heading)
	for _, s := range items {
		w.item("%s", s)
	}
}

// wrap writes words, in lines that begin as given.
func (w *writer) wrap(first, rest, text string) {
	line := first
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len(line)+1+len(word) > columns {
			w.line(line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	w.line(line)
}
