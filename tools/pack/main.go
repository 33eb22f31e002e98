// Command pack makes what people install: packages for Debian and Red Hat, and
// the list of what is in a program. It promises that packages have what
// deploy/linux/nfpm.yaml lists, with manual pages and completions that the
// program itself has written.
//
//	pack stage -program bin/quipu         fills bin/stage
//	pack linux -version 1.2.3 -arch amd64 makes bin/dist/*.deb and *.rpm of it
//	pack sbom  -version 1.2.3             makes bin/dist/*.cdx.json of it
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// A job is what the flags say. All paths are below the repository.
type job struct {
	program string // that of this machine, which is asked for its manual
	binary  string // that is packed, perhaps for another machine
	version string
	os      string
	arch    string
}

// run runs one command in the repository.
func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want stage, linux or sbom")
	}
	var j job
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	source := flags.String("source", ".", "the repository")
	flags.StringVar(&j.program, "program", "bin/quipu", "a quipu that runs on this machine")
	flags.StringVar(&j.binary, "binary", "", "the quipu to pack, if it is another one")
	flags.StringVar(&j.version, "version", "", "such as 1.2.3; without it, one that is older than all others")
	flags.StringVar(&j.os, "os", "linux", "the system that the binary runs on, as Go names it")
	flags.StringVar(&j.arch, "arch", runtime.GOARCH, "the processor that it runs on")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if j.binary == "" {
		j.binary = j.program
	}
	j.version = semver(j.version)
	if err := os.Chdir(*source); err != nil { // the configuration names files below it
		return err
	}
	switch args[0] {
	case "stage":
		return j.stage()
	case "linux":
		return j.linux(out)
	case "sbom":
		return j.sbom(out)
	default:
		return fmt.Errorf("%q: want stage, linux or sbom", args[0])
	}
}
