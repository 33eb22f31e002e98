package keyspace

// kindText is the first byte of what a key holds if that is text. The others are those of
// other things that keys may hold.
const kindText = 0

// Content returns the bytes of the part that holds text.
func Content(text string) []byte { return append([]byte{kindText}, text...) }

// Text returns the text that such bytes are; ok is false if they are something else.
func Text(content string) (text string, ok bool) {
	if content == "" || content[0] != kindText {
		return "", false
	}
	return content[1:], true
}
