package engine

// A list is a long list of slots. It grows by pieces: adding to it never copies
// what is there, however much that is, and a copy of the list stays as it was.
type list struct {
	full [][]uint32 // pieces of listPiece each
	tail []uint32
}

const listPiece = 1 << 14

func (l *list) len() int { return len(l.full)*listPiece + len(l.tail) }

func (l *list) add(id uint32) {
	if len(l.tail) == cap(l.tail) {
		if len(l.tail) > 0 {
			l.full = append(l.full, l.tail)
		}
		l.tail = make([]uint32, 0, listPiece)
	}
	l.tail = append(l.tail, id)
}

// part returns up to n slots from an index on, and none at the end of the list.
func (l *list) part(from, n int) []uint32 {
	piece, at := l.tail, min(from/listPiece, len(l.full))
	if at < len(l.full) {
		piece = l.full[at]
	}
	from = min(from-at*listPiece, len(piece))
	return piece[from:min(from+n, len(piece))]
}
