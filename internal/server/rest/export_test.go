package rest

import "slices"

// Routes returns "METHOD path" of every route.
func Routes() []string {
	var all []string
	for _, r := range routes() {
		all = append(all, r.method+" "+r.path)
	}
	return all
}

// DecodeAsk decodes a question to a limit, and checks it as Allow does.
func DecodeAsk(body []byte) error {
	a, err := decodeAsk(body)
	if err == nil {
		err = a.options.Check()
	}
	return err
}

// IsInt64 reports whether a member of a reply is in the table of int64=string.
func IsInt64(name string) bool { return isInt64(name) }

// QuoteInt64 makes strings of the integers of 64 bits of a reply.
func QuoteInt64(reply []byte) []byte { return quoteInt64(reply) }

// Label escapes the value of a label.
func Label(s string) string { return string(appendLabel(nil, s)) }

// Operations returns the name of each route in the table of package access, by "METHOD path";
// also those of --pprof.
func Operations() map[string]string {
	all := map[string]string{}
	for _, r := range slices.Concat(routes(), profiles(), pages()) {
		all[r.method+" "+r.path] = r.operation()
	}
	return all
}
