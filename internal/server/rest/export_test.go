package rest

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
