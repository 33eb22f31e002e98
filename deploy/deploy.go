// Package deploy has the files of this folder that the program uses itself.
package deploy

import _ "embed"

//go:embed alerts.yml
var alerts []byte

// Alerts returns alerts.yml. The caller must not change it.
func Alerts() []byte { return alerts }
