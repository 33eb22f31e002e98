package keyspace

import (
	"bytes"
	"math"
	"strings"
)

// A command is one that a Space can execute.
type command struct {
	arity       int // as Redis has it: the name counts, and below 0 it is the least
	first, step int // of its keys, from 1 on; 0 steps is one key, or with last those up to there
	last        int
	writes      bool
	do          func(s *Space, args [][]byte) Reply
}

var commands = map[string]command{
	"GET":         {2, 1, 0, 1, false, ofText(func(e *entry, _ [][]byte) Reply { return e.value() })},
	"MGET":        {-2, 1, 1, -1, false, mget},
	"STRLEN":      {2, 1, 0, 1, false, ofText(func(e *entry, _ [][]byte) Reply { return number(int64(len(e.is.String()))) })},
	"GETRANGE":    {4, 1, 0, 1, false, getRange},
	"SUBSTR":      {4, 1, 0, 1, false, getRange},
	"SET":         {-3, 1, 0, 1, true, set},
	"SETNX":       {3, 1, 0, 1, true, setNX},
	"SETEX":       {4, 1, 0, 1, true, setEX("EX", "setex")},
	"PSETEX":      {4, 1, 0, 1, true, setEX("PX", "psetex")},
	"GETSET":      {3, 1, 0, 1, true, ofText(getSet)},
	"GETDEL":      {2, 1, 0, 1, true, ofText(getDel)},
	"GETEX":       {-2, 1, 0, 1, true, getEx},
	"MSET":        {-3, 1, 2, -1, true, mset},
	"MSETNX":      {-3, 1, 2, -1, true, msetNX},
	"APPEND":      {3, 1, 0, 1, true, ofText(appendText)},
	"SETRANGE":    {4, 1, 0, 1, true, setRange},
	"INCR":        {2, 1, 0, 1, true, func(s *Space, a [][]byte) Reply { return s.at(a[1]).plus(1) }},
	"DECR":        {2, 1, 0, 1, true, func(s *Space, a [][]byte) Reply { return s.at(a[1]).plus(-1) }},
	"INCRBY":      {3, 1, 0, 1, true, plusBy(1)},
	"DECRBY":      {3, 1, 0, 1, true, plusBy(-1)},
	"INCRBYFLOAT": {3, 1, 0, 1, true, ofText(plusFloat)},
	"DEL":         {-2, 1, 1, -1, true, del},
	"UNLINK":      {-2, 1, 1, -1, true, del},
	"EXISTS":      {-2, 1, 1, -1, false, exists},
	"TOUCH":       {-2, 1, 1, -1, false, exists},
	"TYPE":        {2, 1, 0, 1, false, typeOf},
	"RENAME":      {3, 1, 1, 2, true, rename(false)},
	"RENAMENX":    {3, 1, 1, 2, true, rename(true)},
	"COPY":        {-3, 1, 1, 2, true, copyKey},
	"EXPIRE":      {-3, 1, 0, 1, true, expire(1000, false, "expire")},
	"PEXPIRE":     {-3, 1, 0, 1, true, expire(1, false, "pexpire")},
	"EXPIREAT":    {-3, 1, 0, 1, true, expire(1000, true, "expireat")},
	"PEXPIREAT":   {-3, 1, 0, 1, true, expire(1, true, "pexpireat")},
	"PERSIST":     {2, 1, 0, 1, true, persist},
	"TTL":         {2, 1, 0, 1, false, ttl(1000, false)},
	"PTTL":        {2, 1, 0, 1, false, ttl(1, false)},
	"EXPIRETIME":  {2, 1, 0, 1, false, ttl(1000, true)},
	"PEXPIRETIME": {2, 1, 0, 1, false, ttl(1, true)},

	"PFADD":          {-2, 1, 0, 1, true, pfAdd},
	"PFCOUNT":        {-2, 1, 1, -1, false, pfCount},
	"PFMERGE":        {-2, 1, 1, -1, true, pfMerge},
	"BF.RESERVE":     {-4, 1, 0, 1, true, bfReserve},
	"BF.ADD":         {3, 1, 0, 1, true, bfAdd},
	"BF.MADD":        {-3, 1, 0, 1, true, bfMAdd},
	"BF.INSERT":      {-4, 1, 0, 1, true, bfInsert},
	"BF.EXISTS":      {3, 1, 0, 1, false, bfExists},
	"BF.MEXISTS":     {-3, 1, 0, 1, false, bfMExists},
	"BF.INFO":        {-2, 1, 0, 1, false, bfInfo},
	"BF.CARD":        {2, 1, 0, 1, false, bfCard},
	"CMS.INITBYDIM":  {4, 1, 0, 1, true, cmsInit(false)},
	"CMS.INITBYPROB": {4, 1, 0, 1, true, cmsInit(true)},
	"CMS.INCRBY":     {-4, 1, 0, 1, true, cmsIncrBy},
	"CMS.QUERY":      {-3, 1, 0, 1, false, cmsQuery},
	"CMS.MERGE":      {-4, 1, 0, 1, true, cmsMerge}, // more keys follow: see mergedKeys
	"CMS.INFO":       {2, 1, 0, 1, false, cmsInfo},
	"TOPK.RESERVE":   {-3, 1, 0, 1, true, topReserve},
	"TOPK.ADD":       {-3, 1, 0, 1, true, topAdd},
	"TOPK.INCRBY":    {-4, 1, 0, 1, true, topIncrBy},
	"TOPK.QUERY":     {-3, 1, 0, 1, false, topQuery},
	"TOPK.COUNT":     {-3, 1, 0, 1, false, topCount},
	"TOPK.LIST":      {-2, 1, 0, 1, false, topList},
	"TOPK.INFO":      {2, 1, 0, 1, false, topInfo},

	"PUBLISH": {3, 0, 0, 0, true, publish},

	"HGET":         {3, 1, 0, 1, false, ofHash(hget)},
	"HMGET":        {-3, 1, 0, 1, false, ofHash(hmget)},
	"HGETALL":      {2, 1, 0, 1, false, ofHash(hall(Map, true, true))},
	"HKEYS":        {2, 1, 0, 1, false, ofHash(hall(Array, true, false))},
	"HVALS":        {2, 1, 0, 1, false, ofHash(hall(Array, false, true))},
	"HLEN":         {2, 1, 0, 1, false, ofHash(hlen)},
	"HEXISTS":      {3, 1, 0, 1, false, ofHash(hexists)},
	"HSTRLEN":      {3, 1, 0, 1, false, ofHash(hstrlen)},
	"HSET":         {-4, 1, 0, 1, true, hset(true)},
	"HMSET":        {-4, 1, 0, 1, true, hset(false)},
	"HSETNX":       {4, 1, 0, 1, true, hsetNX},
	"HDEL":         {-3, 1, 0, 1, true, hdel},
	"HINCRBY":      {4, 1, 0, 1, true, hincrBy},
	"HINCRBYFLOAT": {4, 1, 0, 1, true, hincrByFloat},

	"ZSCORE":           {3, 1, 0, 1, false, ofSorted(zscore)},
	"ZMSCORE":          {-3, 1, 0, 1, false, ofSorted(zmscore)},
	"ZCARD":            {2, 1, 0, 1, false, ofSorted(zcard)},
	"ZRANK":            {3, 1, 0, 1, false, ofSorted(zrank(false))},
	"ZREVRANK":         {3, 1, 0, 1, false, ofSorted(zrank(true))},
	"ZCOUNT":           {4, 1, 0, 1, false, zcount},
	"ZRANGE":           {-4, 1, 0, 1, false, zrange(rangeOptions{}, true)},
	"ZREVRANGE":        {-4, 1, 0, 1, false, zrange(rangeOptions{reverse: true}, false)},
	"ZRANGEBYSCORE":    {-4, 1, 0, 1, false, zrange(rangeOptions{byScore: true}, false)},
	"ZREVRANGEBYSCORE": {-4, 1, 0, 1, false, zrange(rangeOptions{byScore: true, reverse: true}, false)},
	"ZADD":             {-4, 1, 0, 1, true, zadd},
	"ZINCRBY":          {4, 1, 0, 1, true, zincrBy},
	"ZREM":             {-3, 1, 0, 1, true, zrem},
	"ZREMRANGEBYSCORE": {4, 1, 0, 1, true, zremByScore},
	"ZREMRANGEBYRANK":  {4, 1, 0, 1, true, zremByRank},
	"ZPOPMIN":          {-2, 1, 0, 1, true, zpop(false)},
	"ZPOPMAX":          {-2, 1, 0, 1, true, zpop(true)},
}

// Has reports whether a Space can execute a command, and whether that may change anything.
func Has(name string) (writes, has bool) {
	c, has := commands[strings.ToUpper(name)]
	return c.writes, has
}

// Fits reports whether a command that a Space can execute takes so many arguments.
func Fits(args [][]byte) bool {
	c, has := commands[strings.ToUpper(string(args[0]))]
	return has && c.fits(len(args))
}

func (c *command) fits(args int) bool { return args == c.arity || c.arity < 0 && args >= -c.arity }

// KeysOf returns the keys that a command names; none if there is no such command.
func KeysOf(args [][]byte) (keys [][]byte) {
	if len(args) == 0 {
		return nil
	}
	c, has := commands[strings.ToUpper(string(args[0]))]
	if !has {
		return nil
	}
	last := c.last
	if last < 0 {
		last += len(args)
	}
	for i := c.first; i > 0 && i <= last && i < len(args); i += max(c.step, 1) {
		keys = append(keys, args[i])
	}
	if is(args[0], "CMS.MERGE") {
		keys = append(keys, mergedKeys(args)...)
	}
	return keys
}

// mergedKeys returns the keys whose sketches CMS.MERGE adds up.
func mergedKeys(args [][]byte) [][]byte {
	if len(args) < 4 {
		return nil
	}
	n, is := Integer(args[2])
	if !is || n < 1 {
		return nil
	}
	return args[3 : 3+min(n, int64(len(args)-3))]
}

// Do executes a command. One that is refused has changed nothing.
func (s *Space) Do(args [][]byte) Reply {
	if len(args) == 0 {
		return failed("ERR unknown command ''")
	}
	name := string(args[0])
	c, has := commands[strings.ToUpper(name)]
	switch {
	case !has:
		return failed("ERR unknown command '" + name[:min(len(name), 128)] + "'")
	case !c.fits(len(args)):
		return wrongArity(name)
	}
	return c.do(s, args)
}

// text returns a key whose text a command looks at; wrong says why it has none.
func (s *Space) text(key []byte) (e *entry, wrong string) {
	if e = s.at(key); e.is.Held != "" {
		return e, errWrongType
	}
	return e, ""
}

// ofText makes a command of what it does with a key that holds text, a count, or nothing.
func ofText(do func(e *entry, args [][]byte) Reply) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		e, wrong := s.text(args[1])
		if wrong != "" {
			return failed(wrong)
		}
		return do(e, args)
	}
}

func wrongArity(name string) Reply {
	return failed("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
}

func mget(s *Space, args [][]byte) Reply {
	r := Reply{Kind: Array, All: make([]Reply, 0, len(args)-1)}
	for _, key := range args[1:] {
		e := s.at(key)
		if e.is.Held != "" { // It is no string.
			r.All = append(r.All, Reply{})
			continue
		}
		r.All = append(r.All, e.value())
	}
	return r
}

func getRange(s *Space, args [][]byte) Reply {
	from, ok1 := Integer(args[2])
	to, ok2 := Integer(args[3])
	if !ok1 || !ok2 {
		return failed(errInteger)
	}
	e, wrong := s.text(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	text := e.is.String()
	n := int64(len(text))
	if from < 0 && to < 0 && from > to {
		return bulk("")
	}
	if from < 0 {
		from = max(from+n, 0)
	}
	if to < 0 {
		to = max(to+n, 0)
	}
	if to = min(to, n-1); from > to || n == 0 {
		return bulk("")
	}
	return bulk(text[from : to+1])
}

// fits reports whether text may be a value.
func fits(text []byte) bool { return len(text) <= TextMax }

func set(s *Space, args [][]byte) Reply {
	o, wrong := parseSet(args[3:])
	if wrong != "" {
		return failed(wrong)
	}
	if !fits(args[2]) {
		return failed(errTooLong)
	}
	e, done := s.at(args[1]), ok()
	if o.get {
		if e.is.Held != "" {
			return failed(errWrongType)
		}
		done = e.value()
	}
	if o.nx && e.is.Exists || o.xx && !e.is.Exists {
		if o.get {
			return done
		}
		return Reply{}
	}
	v := textValue(string(args[2]))
	if o.keep {
		e.edit(v)
	} else {
		s.assign(e, v, o.ends)
	}
	return done
}

// assign makes a key a value with an end. What has ended already is gone.
func (s *Space) assign(e *entry, v Value, at end) {
	if v.DeadlineMS = at.ms; at.lives != 0 {
		v.DeadlineMS = s.deadline(at.lives)
	}
	if v.DeadlineMS != 0 && v.DeadlineMS <= s.now {
		v, at.lives = Value{}, 0
	}
	e.assign(v, at.lives)
}

func setNX(s *Space, args [][]byte) Reply {
	e := s.at(args[1])
	if !fits(args[2]) {
		return failed(errTooLong)
	}
	if !e.is.Exists {
		e.assign(textValue(string(args[2])), 0)
		return number(1)
	}
	return number(0)
}

func setEX(unit, name string) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		at, wrong := parseEnd([]byte(unit), args[2], name)
		switch {
		case wrong != "":
			return failed(wrong)
		case !fits(args[3]):
			return failed(errTooLong)
		}
		s.assign(s.at(args[1]), textValue(string(args[3])), at)
		return ok()
	}
}

func getSet(e *entry, args [][]byte) Reply {
	if !fits(args[2]) {
		return failed(errTooLong)
	}
	was := e.value()
	e.assign(textValue(string(args[2])), 0)
	return was
}

func getDel(e *entry, _ [][]byte) Reply {
	was := e.value()
	if e.is.Exists {
		e.assign(Value{}, 0)
	}
	return was
}

func getEx(s *Space, args [][]byte) Reply {
	o, wrong := parseGetEx(args[2:])
	if wrong != "" {
		return failed(wrong)
	}
	e, wrong := s.text(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	was := e.value()
	if !e.is.Exists {
		return was
	}
	if o.unit != nil {
		at, wrong := parseEnd(o.unit, o.value, "getex")
		if wrong != "" {
			return failed(wrong)
		}
		s.until(e, at)
	} else if o.persist && e.is.DeadlineMS != 0 {
		e.age(0, 0)
	}
	return was
}

// until gives a key that exists an end.
func (s *Space) until(e *entry, at end) {
	ms := at.ms
	if at.lives != 0 {
		ms = s.deadline(at.lives)
	}
	if ms <= s.now {
		e.assign(Value{}, 0)
		return
	}
	e.age(ms, at.lives)
}

func mset(s *Space, args [][]byte) Reply {
	if len(args)%2 == 0 {
		return wrongArity(string(args[0]))
	}
	for i := 2; i < len(args); i += 2 {
		if !fits(args[i]) {
			return failed(errTooLong)
		}
	}
	for i := 1; i < len(args); i += 2 {
		s.at(args[i]).assign(textValue(string(args[i+1])), 0)
	}
	return ok()
}

func msetNX(s *Space, args [][]byte) Reply {
	if len(args)%2 == 0 {
		return wrongArity(string(args[0]))
	}
	for i := 1; i < len(args); i += 2 {
		if s.at(args[i]).is.Exists {
			return number(0)
		}
	}
	if r := mset(s, args); r.Kind == Error {
		return r
	}
	return number(1)
}

func appendText(e *entry, args [][]byte) Reply {
	text := e.is.String()
	if len(text)+len(args[2]) > TextMax {
		return failed(errTooLong)
	}
	text += string(args[2])
	e.edit(textValue(text))
	return number(int64(len(text)))
}

func setRange(s *Space, args [][]byte) Reply {
	at, is := Integer(args[2])
	switch {
	case !is:
		return failed(errInteger)
	case at < 0:
		return failed(errOffset)
	}
	e, wrong := s.text(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	text := []byte(e.is.String())
	if len(args[3]) == 0 {
		return number(int64(len(text)))
	}
	if at > TextMax || int(at)+len(args[3]) > TextMax {
		return failed(errTooLong)
	}
	if end := int(at) + len(args[3]); end > len(text) {
		text = append(text, make([]byte, end-len(text))...)
	}
	copy(text[at:], args[3])
	e.edit(textValue(string(text)))
	return number(int64(len(text)))
}

func plusBy(sign int64) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		by, is := Integer(args[2])
		switch {
		case !is:
			return failed(errInteger)
		case sign < 0 && by == math.MinInt64:
			return failed("ERR decrement would overflow")
		}
		return s.at(args[1]).plus(sign * by)
	}
}

func del(s *Space, args [][]byte) Reply {
	n := int64(0)
	for _, key := range args[1:] {
		if e := s.at(key); e.is.Exists {
			e.assign(Value{}, 0)
			n++
		}
	}
	return number(n)
}

func exists(s *Space, args [][]byte) Reply {
	n := int64(0)
	for _, key := range args[1:] {
		if s.at(key).is.Exists {
			n++
		}
	}
	return number(n)
}

func typeOf(s *Space, args [][]byte) Reply {
	if e := s.at(args[1]); e.is.Exists {
		return Reply{Kind: Status, Text: e.is.Type()}
	}
	return Reply{Kind: Status, Text: "none"}
}

func rename(absent bool) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		from, to := s.at(args[1]), s.at(args[2])
		done := ok()
		switch {
		case !from.is.Exists:
			return failed(errNoKey)
		case absent && to.is.Exists:
			return number(0)
		case from.inPieces() && from != to:
			return failed(errPieces)
		case absent:
			done = number(1)
		}
		if from != to {
			to.assign(from.is, from.lives)
			from.assign(Value{}, 0)
		}
		return done
	}
}

func copyKey(s *Space, args [][]byte) Reply {
	replace := false
	for _, a := range args[3:] {
		if !bytes.EqualFold(a, []byte("REPLACE")) { // DB names another database, which a batch does not reach
			return failed(errSyntax)
		}
		replace = true
	}
	from, to := s.at(args[1]), s.at(args[2])
	switch {
	case from == to:
		return failed("ERR source and destination objects are the same")
	case !from.is.Exists, to.is.Exists && !replace:
		return number(0)
	case from.inPieces():
		return failed(errPieces)
	}
	to.assign(from.is, from.lives)
	return number(1)
}
