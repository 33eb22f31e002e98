package limit

// An entry is what is known of one limit of a client. Its rate, per and length are those
// of the rule that it was decided by last.
type entry struct {
	tag    uint32
	bucket bool

	// Of a bucket: at atUS, used + rest/per of it was used.
	rate, per  int64
	atUS       int64
	used, rest int64

	// Of windows: from startUS on for so long, cur was used, and prev in the window before.
	// That matters if the window slides.
	slides          bool
	startUS, length int64
	cur, prev       int64
}

// ends returns from when on an entry is as good as none.
func (e *entry) ends() int64 {
	switch {
	case e.bucket:
		return e.atUS + int64(e.level().divUp(e.rate))
	case e.cur > 0 && e.slides:
		return e.startUS + 2*e.length
	case e.cur > 0, e.prev > 0:
		return e.startUS + e.length
	}
	return 0
}

// level returns what is used of a bucket, times per.
func (e *entry) level() wide { return mul(e.used, e.per).plus(e.rest) }

// judged is what becomes of one limit.
type judged struct {
	rule *Rule
	is   entry // at the time of the decision
	left int64 // of the limit, before the cost

	endUS   int64 // of the present window
	retryUS int64 // -1: never; 0: now
	nowUS   int64
	behind  bool
	outside bool
}

// judge judges a cost by a rule at a time.
func (j *judged) judge(r *Rule, was *entry, cost, nowUS int64) {
	j.rule = r
	if was != nil {
		from := was.startUS
		if was.bucket {
			from = was.atUS
		}
		if from > nowUS+SkewUS {
			j.behind, j.retryUS, j.nowUS = true, from-nowUS, nowUS
			return
		}
		nowUS = max(nowUS, from)
	}
	if j.nowUS = nowUS; r.Algorithm == Bucket {
		j.fill(was)
		j.left = r.Burst - j.is.used
		if j.is.rest > 0 {
			j.left--
		}
		j.left = max(j.left, 0)
		j.wait(cost)
		return
	}
	if !j.open(was) {
		return
	}
	j.left = max(r.Rate-j.counted(), 0)
	j.wait(cost)
}

// wait finds out after how long there is a cost, by what is left now.
func (j *judged) wait(cost int64) {
	switch {
	case cost <= j.left:
		j.retryUS = 0
	case j.rule.Algorithm == Bucket:
		j.retryUS = j.bucketRetry(cost)
	default:
		j.retryUS = j.windowRetry(cost)
	}
}

func (j *judged) refused() bool { return j.stuck() || j.retryUS != 0 }

// stuck reports whether nothing can be decided.
func (j *judged) stuck() bool { return j.behind || j.outside }

// later reports whether j refuses for longer than another that refuses too.
func (j *judged) later(o *judged) bool {
	switch {
	case j.stuck() != o.stuck():
		return j.stuck()
	case o.retryUS < 0:
		return false
	}
	return j.retryUS < 0 || j.retryUS > o.retryUS
}

// use takes n of what is left.
func (j *judged) use(n int64) {
	j.left -= n
	if j.is.bucket {
		j.is.used += n
	} else {
		j.is.cur += n
	}
}

// resetUS returns after how long nothing of the limit is used.
func (j *judged) resetUS() int64 { return max(j.is.ends()-j.nowUS, 0) }

// reply returns what is to be said of the limit.
func (j *judged) reply(rule int, allowed bool) Reply {
	r := Reply{Allowed: allowed, Rule: rule, Remaining: j.left, Behind: j.behind, Outside: j.outside}
	switch {
	case j.outside:
	case j.behind:
		r.RetryMS = inMS(j.retryUS)
		r.ResetMS = r.RetryMS
		return r
	case allowed:
	case j.retryUS < 0:
		r.RetryMS = Never
	default:
		r.RetryMS = inMS(j.retryUS)
	}
	r.ResetMS = inMS(j.resetUS())
	return r
}

// inMS returns milliseconds, rounded up, and less than Never.
func inMS(us int64) int64 { return min((us+999)/1000, Never-1) }

// fill makes the entry of a bucket what it is now.
func (j *judged) fill(was *entry) {
	r := j.rule
	j.is = entry{tag: r.Tag, bucket: true, rate: r.Rate, per: r.PerUS, atUS: j.nowUS}
	switch {
	case was == nil:
	case !was.bucket: // a limit that was of windows
		j.is.used = was.usedIn(j.nowUS)
	case was.rate == r.Rate && was.per == r.PerUS:
		j.is.used, j.is.rest = leaked(was, r.Rate, r.PerUS, j.nowUS)
	default:
		// The rate has changed, nobody knows when: what came back since is the less of the
		// two.
		used, rest := leaked(was, was.rate, was.per, j.nowUS)
		used, rest = scaled(used, rest, was.per, r.PerUS)
		e := *was
		e.used, e.rest = scaled(was.used, was.rest, was.per, r.PerUS)
		e.per = r.PerUS
		u, s := leaked(&e, r.Rate, r.PerUS, j.nowUS)
		if u > used || u == used && s > rest {
			used, rest = u, s
		}
		j.is.used, j.is.rest = used, rest
	}
}

// leaked returns what is used of a bucket whose level is in parts of per, after it came
// back by a rate up to now.
func leaked(e *entry, rate, per, nowUS int64) (used, rest int64) {
	return e.level().less(mul(nowUS-e.atUS, rate)).divMod(per)
}

// scaled returns a level in parts of another per, rounded up.
func scaled(used, rest, per, to int64) (int64, int64) {
	rest = int64(mul(rest, to).divUp(per))
	if rest >= to {
		return used + 1, 0
	}
	return used, rest
}

// bucketRetry returns after how long a cost is within the bucket.
func (j *judged) bucketRetry(cost int64) int64 {
	if cost > j.rule.Burst {
		return -1
	}
	over := j.is.level().less(mul(j.rule.Burst-cost, j.rule.PerUS))
	return int64(over.divUp(j.rule.Rate))
}

// open makes the entry of windows that of the present one, or reports that the time is in
// none.
func (j *judged) open(was *entry) bool {
	r := j.rule
	start, end := int64(-1), int64(0)
	if r.Algorithm == Calendar {
		for i := range r.NEdges - 1 {
			if r.Edges[i] <= j.nowUS && j.nowUS < r.Edges[i+1] {
				start, end = r.Edges[i], r.Edges[i+1]
			}
		}
		if start < 0 {
			j.outside, j.retryUS = true, -1
			return false
		}
	} else {
		start = j.nowUS - j.nowUS%r.PerUS
		end = start + r.PerUS
	}
	j.is = entry{tag: r.Tag, slides: r.Algorithm == Sliding, startUS: start, length: end - start}
	j.endUS = end
	switch {
	case was == nil:
	case was.bucket: // a limit that was a bucket
		used, rest := leaked(was, was.rate, was.per, j.nowUS)
		if j.is.cur = used; rest > 0 {
			j.is.cur++
		}
	case was.startUS == start && was.length == end-start:
		j.is.cur, j.is.prev = was.cur, was.prev
	case was.startUS+was.length <= start:
		if was.startUS+was.length > start-(end-start) {
			j.is.prev = was.cur
		}
	case was.startUS > start: // The window has another length, and has the ones before in it.
		j.is.cur = was.cur + was.prev
	default:
		j.is.cur, j.is.prev = was.cur, was.prev
	}
	if !j.is.slides {
		j.is.prev = 0
	}
	return true
}

// counted returns what counts as used in the present window.
func (j *judged) counted() int64 { return j.is.cur + j.is.weighed(j.nowUS) }

// weighed returns what counts of the window before, rounded up.
func (e *entry) weighed(nowUS int64) int64 {
	if e.prev == 0 {
		return 0
	}
	return int64(mul(e.prev, e.startUS+e.length-nowUS).divUp(e.length))
}

// usedIn returns what windows say is used at a time.
func (e *entry) usedIn(nowUS int64) int64 {
	if nowUS >= e.startUS+e.length {
		return 0
	}
	return e.cur + e.weighed(nowUS)
}

// windowRetry returns after how long a cost is within the window.
func (j *judged) windowRetry(cost int64) int64 {
	r, e := j.rule, &j.is
	switch {
	case cost > r.Rate:
		return -1
	case r.Algorithm != Sliding:
		return j.endUS - j.nowUS
	case e.cur+cost <= r.Rate: // as soon as less of the window before counts
		return max(j.endUS-j.nowUS-int64(mul(r.Rate-cost-e.cur, e.length).div(e.prev)), 1)
	default: // in the next one, of which the present one is the one before
		most := min(int64(mul(r.Rate-cost, e.length).div(e.cur)), e.length)
		return j.endUS - j.nowUS + e.length - most
	}
}
