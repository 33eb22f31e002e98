package main

import "fmt"

// didYouMean returns a question that names the known word that was likely meant
// by an unknown one, or "" if none is near.
func didYouMean(word string, known []string) string {
	if near := nearest(word, known); near != "" {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	return ""
}

// nearest returns the known word that is the fewest letters away from word, if
// those are few for its length: a short word is near to many.
func nearest(word string, known []string) (near string) {
	least := 1 + len(word)/6
	for _, k := range known {
		if d := distance(word, k); d <= least {
			near, least = k, d-1
		}
	}
	return near
}

// distance returns how many letters must be added, removed or replaced to make b
// of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the letters of a so far to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
