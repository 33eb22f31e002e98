package keyspace

// A Message is what a command has published. It is to be told when what was changed with it is written.
type Message struct{ Channel, Text string }

// publishedMax is how many bytes the commands of one Space may publish, and messageBytes what a message takes beside
// its text.
const (
	publishedMax = 8 << 20
	messageBytes = 64
)

const errPublished = "ERR too much is published in one step: at most 8 MiB"

// Published returns what commands have published, in their order.
func (s *Space) Published() []Message { return s.published }

func publish(s *Space, args [][]byte) Reply {
	size := s.publishedBytes + messageBytes + len(args[1]) + len(args[2])
	if size > publishedMax {
		return failed(errPublished)
	}
	receivers := int64(0)
	if s.Receivers != nil {
		n, err := s.Receivers(string(args[1]))
		if err != nil {
			return failed(err.Error())
		}
		receivers = n
	}
	s.publishedBytes = size
	s.published = append(s.published, Message{string(args[1]), string(args[2])})
	return number(receivers)
}
